"""What a reap could not settle, for whoever begins next: nodes to leave alone, or no beginning at all."""

from __future__ import annotations

from gameday.cluster.kubernetes import Kubernetes, snapshot
from gameday.history.events import Cleanliness
from gameday.ledger.ledger import ledger_name
from gameday.ledger.reaper import ReapResult
from gameday.run.stop import RefusedError


def nodes_to_leave_alone(kubernetes: Kubernetes, result: ReapResult) -> dict[str, str]:
    """By node: why nothing may begin there. One that is gone or NotReady can prove nothing, and takes no other along.

    Raises RefusedError for what is not proved undone elsewhere, and for what nobody can read; KubernetesError.
    """
    unknown = [one for one in result.reaped if one.cleanliness is Cleanliness.UNKNOWN]
    away = {
        node: why for node in {one.entry.node for one in unknown} if node and (why := _out_of_service(kubernetes, node))
    }
    namespace = kubernetes.profile.namespace
    if left := [one for one in unknown if one.entry.node not in away]:
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
    told = {one.entry.node: f"{away[one.entry.node]}; {one.told()}" for one in unknown if one.entry.node}
    return {**told, **result.dirty_nodes}


def _out_of_service(kubernetes: Kubernetes, name: str) -> str:
    """Empty for a node that is there and Ready."""
    node = kubernetes.node_or_none(name)
    if node is None:
        return "is gone"
    ready = snapshot(node).conditions.get("Ready", "not reported")
    return "" if ready == "True" else f"Ready is {ready}"
