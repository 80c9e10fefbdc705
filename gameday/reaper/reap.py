"""Finish what a dead run left: undo every open entry of every ledger whose run no longer lives.

Needs no living flow and no memory of its own: ledgers, leases and pods in the
cluster say all there is to know. A run lives while it, or the season it is
named after, renews the cluster lease. The reaper takes that lease for its
work, so that no run begins, and no other reaper works, on what it takes out;
a run reaps as its first act, under the lease it has just taken.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from gameday.agent.task import InjectTask
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.manifests import RUN_LABEL
from gameday.cluster.pods import PodFollower
from gameday.errors import KubernetesError, LeaseHeldError
from gameday.ledger.entries import DeleteJob, DeletePod, Entry, TakeOutFault, Undo
from gameday.ledger.lease import CLUSTER_LEASE, Leases, delete_lease, is_ours, lives_under
from gameday.ledger.ledger import Ledger, StoredLedger, StoredLedgers, still_in, stored_ledgers
from gameday.ledger.undo import Undone, undo_entry
from gameday.reaper.quarantine_deadline import quarantine_until
from gameday.values.results import Cleanliness

STRAY = "stray"
"""The entry of a pod that no ledger names."""


@dataclass(frozen=True)
class Reaped:
    """One entry of a dead run, and what became of it, now or in an earlier attempt that found it dirty."""

    run_id: str
    entry: Entry
    cleanliness: Cleanliness
    evidence: tuple[str, ...]

    def told(self) -> str:
        """In one line; of what is not clean, on which node it is and why nothing better can be said."""
        said = f"run {self.run_id}: {self.entry.act}: {self.cleanliness}"
        if self.cleanliness is Cleanliness.CLEAN:
            return said
        return f"{said} (node {self.entry.node or 'none'}; {'; '.join(self.evidence) or 'no evidence'})"


@dataclass(frozen=True)
class ReapResult:
    """`alive` is who holds the cluster lease, where something may be waiting for its end. `unreadable` names
    ConfigMaps, and `<run>/<key>` entries, that only a person can make sense of."""

    reaped: tuple[Reaped, ...] = ()
    alive: tuple[LeaseHeldError, ...] = ()
    unreadable: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        return not self.unreadable and all(one.cleanliness is Cleanliness.CLEAN for one in self.reaped)

    @property
    def news(self) -> dict[str, list[Reaped]]:
        """By run: what was found otherwise than it stood in the ledger. What a clean run's late pod was is no news."""
        found: dict[str, list[Reaped]] = {}
        for one in self.reaped:
            swept = one.entry.id == STRAY and one.cleanliness is Cleanliness.CLEAN
            if one.entry.settled is not one.cleanliness and not swept:
                found.setdefault(one.run_id, []).append(one)
        return found

    @property
    def dirty_nodes(self) -> dict[str, str]:
        """By node: what is still in it and waits for a person, so that nothing may begin there."""
        return {
            one.entry.node: still_in(one.run_id, one.entry)
            for one in self.reaped
            if one.entry.node and one.cleanliness is Cleanliness.DIRTY
        }


@dataclass(frozen=True)
class _Left:
    """What carries a run's name in the cluster."""

    pods: list[Any]
    stored: StoredLedgers
    leases: list[Any]

    def of(self, flow_run: str) -> _Left:
        """What the runs of one flow run left; what no ledger names is the scheduled reaper's."""
        ledgers = tuple(ledger for ledger in self.stored.ledgers if ledger.header.flow_run == flow_run)
        runs = {ledger.header.run_id for ledger in ledgers}
        return _Left(
            [pod for pod in self.pods if pod.metadata.labels[RUN_LABEL] in runs],
            StoredLedgers(ledgers, ()),
            [lease for lease in self.leases if lease.spec.holder_identity in runs],
        )

    @property
    def nothing(self) -> bool:
        return not (self.pods or self.leases or self.stored.ledgers or self.stored.unreadable)


def reap(kubernetes: Kubernetes, *, wait: bool = True, flow_run: str | None = None) -> ReapResult:
    """Undo what every dead run left, newest first, and list what only a person can settle.

    `flow_run`: only what the runs left that were carried by this Prefect flow run.

    `wait`: where a run holds the cluster lease, watch for up to its duration whether that run lives; False takes it
    for alive. While one lives nothing is undone: it has reaped before it began, and whatever is left open lies on
    nodes that it may be using. Raises KubernetesError when something cannot be listed or deleted; the next reap goes
    on from there.
    """
    if _look(kubernetes, flow_run).nothing:
        return ReapResult()
    name = f"reaper-{secrets.token_hex(4)}"
    lost: list[str] = []
    leases = Leases(kubernetes, name, lost.append, timedelta(seconds=kubernetes.profile.lease_duration_s))
    try:
        leases.acquire(CLUSTER_LEASE, patient=wait)
    except LeaseHeldError as held:
        return ReapResult(alive=(held,))
    leases.keep_renewing()
    try:
        return reap_under(kubernetes, name, lost, flow_run)
    finally:
        leases.release()


def reap_under(
    kubernetes: Kubernetes,
    holder: str,
    lost: list[str] | tuple[()] = (),
    flow_run: str | None = None,
    pods: list[Any] | None = None,
) -> ReapResult:
    """As `reap`, by the holder of the cluster lease; ends as soon as `lost` says that it is the holder no more.

    `pods`: ours of any run (V1Pod), where the holder watches them already, since it has the lease.
    """
    left = _look(kubernetes, flow_run, pods)
    reaped: list[Reaped] = []
    unreadable = list(left.stored.unreadable)
    ledgers = [ledger for ledger in left.stored.ledgers if not lives_under(ledger.header.run_id, holder)]
    for ledger in ledgers:
        unreadable += [f"{ledger.header.run_id}/{key}" for key in ledger.unreadable]
        reaped += _reap_one(kubernetes, ledger, lost)
    known = {ledger.header.run_id for ledger in left.stored.ledgers}
    for pod in left.pods:
        run_id = pod.metadata.labels[RUN_LABEL]
        if run_id not in known and not lives_under(run_id, holder) and not lost:
            reaped.append(_sweep(kubernetes, run_id, pod))
    for lease in left.leases:
        if not lives_under(lease.spec.holder_identity or "", holder) and not lost:
            delete_lease(kubernetes, lease.spec.holder_identity, lease.metadata)
    return ReapResult(tuple(reaped), unreadable=tuple(unreadable))


def reap_run(kubernetes: Kubernetes, run_id: str) -> ReapResult:
    """Undo what one run left, by whoever holds the lease that covers it and knows that it is dead.

    Raises KubernetesError.
    """
    left = _look(kubernetes, None)
    ledgers = [ledger for ledger in left.stored.ledgers if ledger.header.run_id == run_id]
    reaped = [one for ledger in ledgers for one in _reap_one(kubernetes, ledger, ())]
    strays = [] if ledgers else [pod for pod in left.pods if pod.metadata.labels[RUN_LABEL] == run_id]
    reaped += [_sweep(kubernetes, run_id, pod) for pod in strays]
    for lease in left.leases:
        if lease.spec.holder_identity == run_id:
            delete_lease(kubernetes, run_id, lease.metadata)
    unreadable = tuple(f"{run_id}/{key}" for ledger in ledgers for key in ledger.unreadable)
    return ReapResult(tuple(reaped), unreadable=unreadable)


def _look(kubernetes: Kubernetes, flow_run: str | None, pods: list[Any] | None = None) -> _Left:
    """Pods first: a run writes its ledger before it makes one, so a pod seen here whose ledger is not is a stray."""
    known, pods = pods, _pods(kubernetes) if pods is None else pods
    stored = stored_ledgers(kubernetes)
    # Where nothing else was left a lease alone harms nobody until its node is wanted.
    nothing = known == [] and not stored.ledgers and not stored.unreadable
    left = _Left(pods, stored, [] if nothing else _leases(kubernetes))
    return left.of(flow_run) if flow_run else left


def _pods(kubernetes: Kubernetes) -> list[Any]:
    with kubernetes.explained("list our pods"):
        found: list[Any] = kubernetes.core.list_namespaced_pod(
            kubernetes.profile.namespace, label_selector=RUN_LABEL
        ).items
    return found


def _leases(kubernetes: Kubernetes) -> list[Any]:
    with kubernetes.explained("list leases"):
        found = kubernetes.coordination.list_namespaced_lease(kubernetes.profile.namespace).items
    return [lease for lease in found if is_ours(lease.metadata.name)]


def _sweep(kubernetes: Kubernetes, run_id: str, pod: Any) -> Reaped:
    """Delete a pod, or its job, whose request reached the server after its ledger had gone: a request may be under way
    for long when its sender sleeps or dies."""
    now, node, undo = datetime.now(UTC), pod.spec.node_name, _undo_of_stray(pod)
    entry = Entry(id=STRAY, seq=0, act="make what no ledger names", node=node, undo=undo, expires=now)
    with PodFollower(kubernetes, run_id) as followed:
        followed.wait_synced()
        done = undo_entry(kubernetes, entry, run_id, followed)
    return Reaped(run_id, entry, done.cleanliness, done.evidence)


def _undo_of_stray(pod: Any) -> Undo:
    """An injector's pod says itself which fault it holds, and has to give its word, as every other."""
    name, owners = pod.metadata.name, pod.metadata.owner_references or []
    if jobs := [owner.name for owner in owners if owner.kind == "Job"]:
        return DeleteJob(job=jobs[0])
    for variable in pod.spec.containers[0].env or []:
        with suppress(ValueError):
            task = InjectTask.model_validate_json(variable.value or "")
            return TakeOutFault(pod=name, gpu=task.gpu, fault=task.fault)
    return DeletePod(pod=name)


def _reap_one(kubernetes: Kubernetes, stored: StoredLedger, lost: list[str] | tuple[()]) -> list[Reaped]:
    run_id, ledger = stored.header.run_id, Ledger.of_stored(kubernetes, stored)
    dirty = [entry for entry in stored.entries if entry.settled is Cleanliness.DIRTY]
    found = [Reaped(run_id, entry, Cleanliness.DIRTY, entry.evidence) for entry in dirty]
    if to_undo := stored.open_entries():
        with PodFollower(kubernetes, run_id) as pods:
            pods.wait_synced()
            found += [_undo(kubernetes, ledger, entry, pods) for entry in to_undo if not lost]
    if ledger.all_clean() and not stored.unreadable:
        ledger.delete()
    return found


def _undo(kubernetes: Kubernetes, ledger: Ledger, entry: Entry, pods: PodFollower) -> Reaped:
    """A ledger that cannot be written costs the next entry nothing: this one stays open and is undone again."""
    run_id, until = ledger.header.run_id, quarantine_until(kubernetes, ledger, entry, pods)
    done = undo_entry(kubernetes, entry, run_id, pods, ledger=ledger)
    try:
        if until and done.cleanliness is Cleanliness.CLEAN:
            entry, done = _kept_open(entry, done, until)
            ledger.update_undo(entry, entry.undo)
        ledger.settle(entry, done.cleanliness, "reaper", done.evidence)
        ledger.flush()
    except KubernetesError as error:
        # 404: another reaper was faster, and found all of it clean.
        if error.status != 404:
            return Reaped(run_id, entry, Cleanliness.UNKNOWN, (*done.evidence, str(error)))
    return Reaped(run_id, entry, done.cleanliness, done.evidence)


def _kept_open(entry: Entry, done: Undone, until: datetime) -> tuple[Entry, Undone]:
    """A node that its detector may still quarantine, so that the next reap takes off what came meanwhile."""
    why = (
        f"the plan lets the detector quarantine {entry.node} until {until:%H:%M:%S} UTC, although the fault is out: "
        "`gameday reap` after that takes off what came"
    )
    kept = entry.model_copy(update={"undo": entry.undo.model_copy(update={"until": until})})
    return kept, Undone(Cleanliness.UNKNOWN, (why, *done.evidence))
