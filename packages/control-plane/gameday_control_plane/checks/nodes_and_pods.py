"""A fault of the control plane must leave nodes and pods alone: no node becomes NotReady, and no pod is evicted."""

from __future__ import annotations

from datetime import datetime

from gameday.checks.facts import first_fault, first_few, stop_reason, target_nodes
from gameday.checks.verdict import Status, Verdict, containment_verdict
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.values.results import Step
from gameday_control_plane.events import NodesAndPodsSeen
from gameday_control_plane.expect.control_plane import ControlPlane

ORDER = 62


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    return by_history(plan, history)


def by_history(plan: Plan, history: History) -> list[Verdict]:
    """Return the verdicts on the cluster's nodes and on its pods."""
    containment = ControlPlane.of(plan.expect).containment
    if containment is None or not containment.nodes_and_pods_stay:
        return []
    node = target_nodes(history)[0]
    seen = {event.phase: event for event in history.of(NodesAndPodsSeen)}
    before, after, fault = seen.get("before"), seen.get("after"), first_fault(history, node)
    if before is None or after is None or fault is None:
        why = f"not read {'after' if before else 'before'} the fault: {stop_reason(history)}"
        return [_nodes("", Status.UNKNOWN, why, node), _pods("", Status.UNKNOWN, why, node)]
    unready = _unready(before, after, fault[1].written_at)
    gone = sorted(name for uid, name in before.pods.items() if uid not in after.pods)
    return [
        _nodes(
            f"{len(unready)} of {len(before.nodes)} nodes", _status(before.nodes, unready), first_few(unready), node
        ),
        _pods(f"{len(gone)} of {len(before.pods)} pods", _status(before.pods, gone), first_few(gone), node),
    ]


def _unready(before: NodesAndPodsSeen, after: NodesAndPodsSeen, written_at: datetime) -> list[str]:
    """Return what became of each node that was Ready before and has not been Ready all the time since."""
    found = []
    for name, was in sorted(before.nodes.items()):
        now = after.nodes.get(name)
        if not was.ready:
            continue
        if now is None:
            found.append(f"{name} is gone")
        elif not now.ready:
            found.append(f"{name} is NotReady")
        elif now.since and now.since != was.since and now.since >= written_at.replace(microsecond=0):
            found.append(f"{name} was NotReady, and is Ready again since {now.since:%H:%M:%S} UTC")
    return found


def _status(seen: object, bad: list[str]) -> Status:
    """Return BROKEN if anything came to harm; UNKNOWN if there was nothing that could."""
    if bad:
        return Status.BROKEN
    return Status.HELD if seen else Status.UNKNOWN


def _nodes(measured: str, status: Status, why: str, node: str | None) -> Verdict:
    return _verdict("containment-nodes", "No node becomes NotReady", measured, status, why, node)


def _pods(measured: str, status: Status, why: str, node: str | None) -> Verdict:
    return _verdict("containment-pods", "No pod is evicted or deleted", measured, status, why, node)


def _verdict(check: str, text: str, measured: str, status: Status, why: str, node: str | None) -> Verdict:
    if status is Status.UNKNOWN and not why:
        why = "not measured: there were none before the fault"
    verdict = containment_verdict(check, text, "0", measured, status, why, node)
    return verdict.model_copy(update={"step": Step.QA_NODE})
