"""Name what others put on the node during a proof and left there, and how it goes away. Pure."""

from __future__ import annotations

from gameday.history.events import ConditionSeen, CordonSeen, TaintSeen
from gameday.history.journal import History
from gameday.values.nodes import Taint
from gameday_prove.events import ProveLooked

_LIFECYCLE = "node.kubernetes.io/"


def left_by_others(history: History) -> list[str]:
    """Return a line for each taint, cordon and condition that came during the proof and is still there."""
    looked = history.first(ProveLooked)
    if looked is None:
        return []
    node = looked.surroundings.node
    taints: dict[Taint, TaintSeen] = {}
    for taint in history.of(TaintSeen):
        taints |= {taint.taint: taint}
    lines = [
        f"taint {one.taint}{_by(one.manager)}: `kubectl taint node {node} {one.taint.key}:{one.taint.effect}-`"
        for one in taints.values()
        if one.present and not one.taint.key.startswith(_LIFECYCLE)
    ]
    cordon = history.last(CordonSeen)
    if cordon and cordon.cordoned:
        lines.append(f"cordon{_by(cordon.manager)}: `kubectl uncordon {node}`")
    conditions = {one.condition: one for one in history.of(ConditionSeen)}
    lines += [
        f"condition {one.condition}={one.status} ({one.reason}): its detector clears it, mostly by a boot of the node"
        for one in conditions.values()
        if one.status is not None and one.condition != "Ready" and _is_trouble(one)
    ]
    return lines


def _is_trouble(seen: ConditionSeen) -> bool:
    """Return True for a status that reports a fault: True, but False where the condition's name is about readiness."""
    return seen.status == ("False" if seen.condition.endswith("Ready") else "True")


def _by(manager: str | None) -> str:
    return f" (written by {manager})" if manager else ""
