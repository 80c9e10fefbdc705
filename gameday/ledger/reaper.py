"""Finish what a dead run left: undo every open entry of every ledger whose run no longer lives.

Needs no living flow and no memory of its own: ledgers and leases in the
cluster say all there is to know. A run lives while it renews the cluster
lease; until that has expired, its entries are its own business.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from gameday.cluster.kubernetes import Kubernetes, KubernetesError
from gameday.cluster.pods import PodFollower
from gameday.history.events import Cleanliness
from gameday.ledger.entries import Entry
from gameday.ledger.lease import CLUSTER_LEASE, LeaseHeldError, delete_lease, held_by_other
from gameday.ledger.ledger import Ledger, StoredLedger, stored_ledgers
from gameday.ledger.undo import undo_entry

_SYNCED_WITHIN_S = 10.0


@dataclass(frozen=True)
class Reaped:
    """One entry of a dead run, and what became of it."""

    run_id: str
    entry: Entry
    cleanliness: Cleanliness
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class ReapResult:
    """`alive` are runs whose lease is live; `expires` says when the last of them could be taken for dead."""

    reaped: tuple[Reaped, ...]
    alive: tuple[LeaseHeldError, ...]
    unreadable: tuple[str, ...]

    @property
    def clean(self) -> bool:
        return not self.unreadable and all(one.cleanliness is Cleanliness.CLEAN for one in self.reaped)


def reap(kubernetes: Kubernetes) -> ReapResult:
    """Undo the open entries of every dead run, newest first. Raises KubernetesError when ledgers cannot be listed."""
    holder = _live_holder(kubernetes)
    reaped: list[Reaped] = []
    alive: list[LeaseHeldError] = []
    unreadable: list[str] = []
    for stored in stored_ledgers(kubernetes):
        if holder is not None and holder.holder == stored.header.run_id:
            alive.append(holder)
            continue
        unreadable += [f"{stored.header.run_id}/{key}" for key in stored.unreadable]
        reaped += _reap_one(kubernetes, stored)
    return ReapResult(tuple(reaped), tuple(alive), tuple(unreadable))


def _live_holder(kubernetes: Kubernetes) -> LeaseHeldError | None:
    try:
        with kubernetes.explained(f"read lease {CLUSTER_LEASE}"):
            lease = kubernetes.coordination.read_namespaced_lease(CLUSTER_LEASE, kubernetes.profile.namespace)
    except KubernetesError as error:
        if error.status == 404:
            return None
        raise
    return held_by_other(lease, "reaper")


def _reap_one(kubernetes: Kubernetes, stored: StoredLedger) -> list[Reaped]:
    run_id, ledger = stored.header.run_id, Ledger.of_stored(kubernetes, stored)
    found: list[Reaped] = []
    with PodFollower(kubernetes, run_id) as pods:
        pods.wait_synced(_SYNCED_WITHIN_S)
        for entry in stored.open_entries():
            done = undo_entry(kubernetes, entry, run_id, pods)
            ledger.settle(entry, done.cleanliness, "reaper", done.evidence)
            ledger.flush()
            found.append(Reaped(run_id, entry, done.cleanliness, done.evidence))
    if ledger.all_clean() and not stored.unreadable:
        ledger.delete()
    _release_leases(kubernetes, run_id)
    return found


def _release_leases(kubernetes: Kubernetes, run_id: str) -> None:
    with kubernetes.explained("list leases"):
        leases = kubernetes.coordination.list_namespaced_lease(kubernetes.profile.namespace).items
    for lease in leases:
        if lease.spec.holder_identity == run_id:
            delete_lease(kubernetes, lease.metadata.name, lease.metadata.uid)


def when(held: LeaseHeldError) -> float:
    """Seconds until the run that holds the lease is taken for dead."""
    return max(0.0, (held.expires() - datetime.now(UTC)).total_seconds())
