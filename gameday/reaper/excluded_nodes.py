"""What a reap could not settle, for whoever begins next: nodes to leave alone, or no beginning at all."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.nodes import snapshot
from gameday.errors import RefusedError
from gameday.ledger.entries import Entry, RestoreNode
from gameday.ledger.ledger import ledger_name
from gameday.reaper.reap import ReapResult
from gameday.values.results import Cleanliness


def excluded_nodes(kubernetes: Kubernetes, result: ReapResult) -> dict[str, str]:
    """By node: why nothing may begin there. One that is gone or NotReady can prove nothing, and one may still be
    quarantined for a fault that is out: neither takes another along.

    Raises RefusedError for what is not proved undone elsewhere, and for what nobody can read; KubernetesError.
    """
    unknown = [one for one in result.reaped if one.cleanliness is Cleanliness.UNKNOWN]
    reasons = node_only(kubernetes, [one.entry for one in unknown])
    namespace = kubernetes.profile.namespace
    if left := [one for one, why in zip(unknown, reasons, strict=True) if not why]:
        ledgers = " ".join(dict.fromkeys(ledger_name(one.run_id) for one in left))
        raise RefusedError(
            "not proved undone: " + "; ".join(one.told() for one in left),
            "`gameday reap` tries again, and says why it fails; once somebody has seen to it: "
            f"kubectl -n {namespace} delete configmap {ledgers}",
        )
    if result.unreadable:
        raise RefusedError(
            f"nobody can tell what these ledgers leave open: {', '.join(result.unreadable)}",
            f"kubectl -n {namespace} get configmap -l gameday.dev/ledger=true -o yaml",
        )
    told = {one.entry.node: f"{why}; {one.told()}" for one, why in zip(unknown, reasons, strict=True) if one.entry.node}
    return {**told, **result.dirty_nodes}


def node_only(kubernetes: Kubernetes, entries: Sequence[Entry]) -> list[str]:
    """Of each entry that is not proved undone: why it keeps others off its node and no other; empty where it may be
    anywhere. Raises KubernetesError."""
    away = {node: _out_of_service(kubernetes, node) for node in {entry.node for entry in entries} if node}
    return [_still_to_come(entry) or away.get(entry.node or "", "") for entry in entries]


def _still_to_come(entry: Entry) -> str:
    until = entry.undo.until if isinstance(entry.undo, RestoreNode) else None
    if until is None or until <= datetime.now(UTC):
        return ""
    return f"may still be quarantined until {until:%H:%M:%S} UTC for a fault that is out"


def _out_of_service(kubernetes: Kubernetes, name: str) -> str:
    """Empty for a node that is there and Ready."""
    node = kubernetes.node_or_none(name)
    if node is None:
        return "is gone"
    ready = snapshot(node).conditions.get("Ready", "not reported")
    return "" if ready == "True" else f"Ready is {ready}"
