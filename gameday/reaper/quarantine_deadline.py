"""Until when a detector may still quarantine a node for a fault that a reaper has ended early.

Taken off before it is set it would stay, and nobody would know whose it is.
"""

from __future__ import annotations

from datetime import UTC, datetime

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.nodes import snapshot
from gameday.cluster.pods import PodFollower
from gameday.errors import KubernetesError
from gameday.ledger.entries import Entry, RestoreNode
from gameday.ledger.ledger import Ledger
from gameday.ledger.undo import went_in


def quarantine_until(kubernetes: Kubernetes, ledger: Ledger, entry: Entry, pods: PodFollower) -> datetime | None:
    """Asked once the faults are out, and before the node is restored; None where nothing is still to come.

    The pods tell when the faults went in. They go with their undo, so that the answer has to be kept in the ledger.
    """
    restore = entry.undo
    if not isinstance(restore, RestoreNode) or entry.node is None:
        return None
    times = [at for pod in ledger.injectors_on(entry.node) if (at := went_in(pods, pod))]
    until = restore.until or (max(times) + restore.within if times else None)
    if until is None or until <= datetime.now(UTC):
        return None
    try:
        node = kubernetes.node_or_none(entry.node)
    except KubernetesError:
        return until
    return None if node is None or restore.has_come_to(snapshot(node)) else until
