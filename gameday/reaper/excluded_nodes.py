"""Reap before a run or a season begins, and exclude the nodes that the reap could not settle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.nodes import snapshot
from gameday.errors import RefusedError
from gameday.ledger.entries import Entry, RestoreNode
from gameday.ledger.ledger import ledger_name
from gameday.reaper.reap import ReapResult, reap_under
from gameday.values.results import Cleanliness


def reap_before_start(
    kubernetes: Kubernetes, holder: str, on_reaped: Callable[[ReapResult], object], pods: list[Any] | None = None
) -> dict[str, str]:
    """Undo what dead runs left, before anything is measured or changed.

    Args:
        kubernetes: The cluster.
        holder: The run or season that is about to begin; it holds the cluster lease.
        on_reaped: Receives what was undone, also where that keeps the run from beginning.
        pods: Pods of dead runs (V1Pod), where the holder watches them already; None: they are listed.

    Returns:
        By node: why it cannot be a target, because it is dirty or away.

    Raises:
        RefusedError: It is not known whether everything is undone.
        KubernetesError: The cluster does not answer.
    """
    result = reap_under(kubernetes, holder, pods=pods)
    on_reaped(result)
    return excluded_nodes(kubernetes, result)


def excluded_nodes(kubernetes: Kubernetes, result: ReapResult) -> dict[str, str]:
    """Return by node why no run may use it after a reap.

    A node that is gone or NotReady can prove nothing, and one may still be quarantined for a fault that is out; such a
    node keeps no run off the others.

    Raises:
        RefusedError: A change elsewhere is not proved undone, or a ledger cannot be read.
        KubernetesError: The cluster does not answer.
    """
    unknown = [one for one in result.reaped if one.cleanliness is Cleanliness.UNKNOWN]
    reasons = node_reasons(kubernetes, [one.entry for one in unknown])
    namespace = kubernetes.profile.namespace
    if left := [one for one, why in zip(unknown, reasons, strict=True) if not why]:
        ledgers = " ".join(dict.fromkeys(ledger_name(one.run_id) for one in left))
        raise RefusedError(
            "not proved undone: " + "; ".join(one.describe() for one in left),
            "run `gameday reap`, which tries again and says why it fails; once somebody has undone it by hand: "
            f"kubectl -n {namespace} delete configmap {ledgers}",
        )
    if result.unreadable:
        raise RefusedError(
            f"these cannot be read, and may leave changes open: {'; '.join(map(str, result.unreadable))}",
            f"kubectl -n {namespace} get configmap -l gameday.dev/ledger=true -o yaml; once somebody has undone by "
            "hand what these name, delete the ConfigMaps",
        )
    excluded = {
        one.entry.node: f"{why}; {one.describe()}" for one, why in zip(unknown, reasons, strict=True) if one.entry.node
    }
    return {**excluded, **result.dirty_nodes}


def node_reasons(kubernetes: Kubernetes, entries: Sequence[Entry]) -> list[str]:
    """Return for each entry that is not proved undone why it keeps others off its node, and off no other.

    Empty where the change may be anywhere, so that nothing may begin at all.

    Raises:
        KubernetesError: A node cannot be read.
    """
    out_of_service = {node: _out_of_service(kubernetes, node) for node in {entry.node for entry in entries} if node}
    return [
        _may_be_quarantined(entry, kubernetes.clock.now()) or out_of_service.get(entry.node or "", "")
        for entry in entries
    ]


def _may_be_quarantined(entry: Entry, now: datetime) -> str:
    until = entry.undo.until if isinstance(entry.undo, RestoreNode) else None
    if until is None or until <= now:
        return ""
    return f"may still be quarantined until {until:%H:%M:%S} UTC for a fault that is out"


def _out_of_service(kubernetes: Kubernetes, name: str) -> str:
    """Return why a node is out of service; empty where it is there and Ready."""
    node = kubernetes.node_or_none(name)
    if node is None:
        return "is gone"
    ready = snapshot(node).conditions.get("Ready", "not reported")
    return "" if ready == "True" else f"Ready is {ready}"
