"""Finish what a dead run left: undo every open entry of every ledger whose run no longer lives.

Needs no living flow and no memory of its own: ledgers and leases in the
cluster say all there is to know. A run lives while it renews the cluster
lease; until that has expired, its entries are its own business.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gameday.cluster.kubernetes import Kubernetes, KubernetesError
from gameday.cluster.pods import PodFollower
from gameday.history.events import Cleanliness
from gameday.ledger.entries import Entry
from gameday.ledger.lease import CLUSTER_LEASE, LeaseHeldError, delete_lease, live_holder, node_lease
from gameday.ledger.ledger import Ledger, StoredLedger, stored_ledgers
from gameday.ledger.undo import undo_entry

_SYNCED_WITHIN_S = 10.0


@dataclass(frozen=True)
class Reaped:
    """One entry of a dead run, and what became of it, now or in an earlier attempt that found it dirty."""

    run_id: str
    entry: Entry
    cleanliness: Cleanliness
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class ReapResult:
    """`alive` are runs whose lease is live and that something waits for; `expires` says when one could be taken for
    dead. `unreadable` names ConfigMaps, and `<run>/<key>` entries, that only a person can make sense of."""

    reaped: tuple[Reaped, ...]
    alive: tuple[LeaseHeldError, ...]
    unreadable: tuple[str, ...]

    @property
    def clean(self) -> bool:
        return not self.unreadable and all(one.cleanliness is Cleanliness.CLEAN for one in self.reaped)


def reap(kubernetes: Kubernetes) -> ReapResult:
    """Undo the open entries of every dead run, newest first, and list those that only a person can settle.

    A node that a living run holds now is that run's: what a dead one left open
    there waits, because its undo could take out the living one's fault. Raises
    KubernetesError when ledgers cannot be listed or deleted; the next reap goes
    on from there.
    """
    # In this order: a run takes its lease before it writes its ledger, so none of the ledgers read here can belong
    # to a run whose lease is not seen.
    stored, leases = stored_ledgers(kubernetes), _leases(kubernetes)
    alive, theirs = _living(leases)
    reaped: list[Reaped] = []
    met: dict[str, LeaseHeldError] = {}
    unreadable = list(stored.unreadable)
    for ledger in stored.ledgers:
        run_id = ledger.header.run_id
        if run_id in alive:
            met[run_id] = alive[run_id]
            continue
        unreadable += [f"{run_id}/{key}" for key in ledger.unreadable]
        waiting = [entry for entry in ledger.open_entries() if entry.node and node_lease(entry.node) in theirs]
        if waiting:
            met.update(alive)
        reaped += _reap_one(kubernetes, ledger, {entry.id for entry in waiting})
        for lease in leases:
            if lease.spec.holder_identity == run_id:
                delete_lease(kubernetes, run_id, lease.metadata)
    return ReapResult(tuple(reaped), tuple(met.values()), tuple(unreadable))


def _leases(kubernetes: Kubernetes) -> list[Any]:
    with kubernetes.explained("list leases"):
        found: list[Any] = kubernetes.coordination.list_namespaced_lease(kubernetes.profile.namespace).items
    return found


def _living(leases: list[Any]) -> tuple[dict[str, LeaseHeldError], set[str]]:
    """The run whose cluster lease is live, by its id, and the names of the leases it holds.

    A node's lease alone makes no run a living one: it lasts as long as its run
    may, and is never renewed.
    """
    held = live_holder(next((lease for lease in leases if lease.metadata.name == CLUSTER_LEASE), None))
    if held is None:
        return {}, set()
    return {held.holder: held}, {one.metadata.name for one in leases if one.spec.holder_identity == held.holder}


def _reap_one(kubernetes: Kubernetes, stored: StoredLedger, waiting: set[str]) -> list[Reaped]:
    run_id, ledger = stored.header.run_id, Ledger.of_stored(kubernetes, stored)
    dirty = [entry for entry in stored.entries if entry.settled is Cleanliness.DIRTY]
    found = [Reaped(run_id, entry, Cleanliness.DIRTY, entry.evidence) for entry in dirty]
    to_undo = [entry for entry in stored.open_entries() if entry.id not in waiting]
    if to_undo:
        with PodFollower(kubernetes, run_id) as pods:
            pods.wait_synced(_SYNCED_WITHIN_S)
            found += [_undo(kubernetes, ledger, entry, pods) for entry in to_undo]
    if ledger.all_clean() and not stored.unreadable:
        ledger.delete()
    return found


def _undo(kubernetes: Kubernetes, ledger: Ledger, entry: Entry, pods: PodFollower) -> Reaped:
    """A ledger that cannot be written costs the next entry nothing: this one stays open and is undone again."""
    run_id = ledger.header.run_id
    done = undo_entry(kubernetes, entry, run_id, pods)
    try:
        ledger.settle(entry, done.cleanliness, "reaper", done.evidence)
        ledger.flush()
    except KubernetesError as error:
        # 404: another reaper was faster, and found all of it clean.
        if error.status != 404:
            return Reaped(run_id, entry, Cleanliness.UNKNOWN, (*done.evidence, str(error)))
    return Reaped(run_id, entry, done.cleanliness, done.evidence)


def when(held: LeaseHeldError) -> float:
    """Seconds until the run that holds the lease is taken for dead."""
    return max(0.0, (held.expires() - datetime.now(UTC)).total_seconds())
