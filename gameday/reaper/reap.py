"""Undo every open entry in the ledgers of dead runs.

The reaper needs no living flow and no memory of its own: it reads ledgers, leases and pods in the cluster. A run lives
while it, or the season in its name, renews the cluster lease. The reaper takes that lease for its work, so that no run
begins, and no other reaper works, on the same nodes. A run reaps as its first act, under its own lease.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from gameday.agent.task import AgentResult, InjectTask
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.lease import delete_lease, holder_of, leases_path
from gameday.cluster.manifests import RUN_LABEL
from gameday.cluster.nodes import snapshot
from gameday.cluster.pods import PodFollower
from gameday.errors import KubernetesError, LeaseHeldError
from gameday.ledger.entries import DeleteJob, DeletePod, Entry, RestoreNode, TakeOutFault, Undo, UndoResult
from gameday.ledger.lease import CLUSTER_LEASE, Leases, is_covered_by, is_game_day_lease
from gameday.ledger.ledger import (
    Ledger,
    StoredLedger,
    StoredLedgers,
    Unreadable,
    describe_dirty_entry,
    ledger_name,
    stored_ledgers,
)
from gameday.ledger.undo import undo_entry
from gameday.reaper.late_quarantine import quarantine_deadline
from gameday.text import printable
from gameday.values.results import Cleanliness

_NOT_FOUND_STATUS = 404
STRAY = "stray"
"""Id of the entry that is made up for a pod without a ledger."""


@dataclass(frozen=True)
class Reaped:
    """An entry of a dead run, and how clean it is after this reap, or after an earlier one that found it dirty."""

    run_id: str
    entry: Entry
    cleanliness: Cleanliness
    evidence: tuple[str, ...]
    injector: AgentResult | None = None
    """The last report of the fault's own injector; None: it left none, or the entry is not a fault's."""

    def describe(self) -> str:
        """Return one line, with the node and the evidence if the entry is not clean."""
        summary = f"run {self.run_id}: {self.entry.act}: {self.cleanliness}"
        if self.cleanliness is Cleanliness.CLEAN:
            return summary
        return f"{summary} (node {self.entry.node or 'none'}; {'; '.join(self.evidence) or 'no evidence'})"


@dataclass(frozen=True)
class ReapResult:
    """The findings of one reap."""

    reaped: tuple[Reaped, ...] = ()
    alive: tuple[LeaseHeldError, ...] = ()
    """The living holder of the cluster lease, if something may be left to undo after it ends."""
    unreadable: tuple[Unreadable, ...] = ()
    """Ledgers and entries that only a person can understand; they are kept."""

    @property
    def is_clean(self) -> bool:
        """True if everything that was found is undone."""
        return not self.unreadable and all(one.cleanliness is Cleanliness.CLEAN for one in self.reaped)

    @property
    def changed(self) -> dict[str, list[Reaped]]:
        """The entries with another state than in the ledger, by run; without stray pods that are clean."""
        found: dict[str, list[Reaped]] = {}
        for one in self.reaped:
            is_clean_stray = one.entry.id == STRAY and one.cleanliness is Cleanliness.CLEAN
            if one.entry.settled is not one.cleanliness and not is_clean_stray:
                found.setdefault(one.run_id, []).append(one)
        return found

    @property
    def dirty_nodes(self) -> dict[str, str]:
        """The change known to be left on each node. It waits for a person, and no run may use the node."""
        return {
            one.entry.node: describe_dirty_entry(one.run_id, one.entry)
            for one in self.reaped
            if one.entry.node and one.cleanliness is Cleanliness.DIRTY
        }


@dataclass(frozen=True)
class _Leftovers:
    """Everything in the cluster that carries a run's name."""

    pods: list[Any]
    stored: StoredLedgers
    leases: list[Any]

    def of_flow_run(self, flow_run: str) -> _Leftovers:
        """Return what the runs of one flow run left; pods without a ledger are left to the scheduled reaper."""
        ledgers = tuple(ledger for ledger in self.stored.ledgers if ledger.header.flow_run == flow_run)
        runs = {ledger.header.run_id for ledger in ledgers}
        return _Leftovers(
            [pod for pod in self.pods if pod.metadata.labels[RUN_LABEL] in runs],
            StoredLedgers(ledgers, ()),
            [lease for lease in self.leases if holder_of(lease) in runs],
        )

    @property
    def is_empty(self) -> bool:
        return not (self.pods or self.leases or self.stored.ledgers or self.stored.unreadable)


def reap(kubernetes: Kubernetes, *, observe_holder: bool = True, flow_run: str | None = None) -> ReapResult:
    """Undo what every dead run left, newest first, and list what only a person can settle.

    While a run lives nothing is undone: it has reaped before it began, and it may be using the nodes with open entries.
    After an error the next reap goes on from there.

    Args:
        kubernetes: The cluster.
        observe_holder: If a run holds the cluster lease, observe for up to the lease's duration whether it lives;
            False: believe the times in its lease.
        flow_run: Reap only the runs of this Prefect flow run; None: all.

    Raises:
        KubernetesError: Something cannot be listed or deleted.
    """
    if _find_leftovers(kubernetes, flow_run).is_empty:
        return ReapResult()
    name = f"reaper-{secrets.token_hex(4)}"
    lost: list[str] = []
    leases = Leases(kubernetes, name, lost.append, timedelta(seconds=kubernetes.profile.lease_duration_s))
    try:
        leases.acquire(CLUSTER_LEASE, always_observe=observe_holder)
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
    """Reap as `reap` does, under a cluster lease that is already held.

    Args:
        kubernetes: The cluster.
        holder: The run, season or reaper that holds the lease; its own changes are left alone.
        lost: Filled by another thread when the holder loses the lease; the reap then ends.
        flow_run: Reap only the runs of this Prefect flow run; None: all.
        pods: Pods of any run (V1Pod), if the holder already watches them; None: they are listed.

    Raises:
        KubernetesError: Something cannot be listed or deleted.
    """
    left = _find_leftovers(kubernetes, flow_run, pods)
    reaped: list[Reaped] = []
    unreadable = list(left.stored.unreadable)
    ledgers = [ledger for ledger in left.stored.ledgers if not is_covered_by(ledger.header.run_id, holder)]
    # A comparison's id is a prefix of its game-days' ids. Its undo restarts the API servers, so their undos come first.
    for ledger in sorted(ledgers, key=lambda ledger: ledger.header.run_id, reverse=True):
        unreadable += ledger.unreadable
        reaped += _reap_ledger(kubernetes, ledger, lost)
    runs_with_ledger = {ledger.header.run_id for ledger in left.stored.ledgers}
    for pod in left.pods:
        run_id = pod.metadata.labels[RUN_LABEL]
        if run_id not in runs_with_ledger and not is_covered_by(run_id, holder) and not lost:
            reaped.append(_undo_stray(kubernetes, run_id, pod))
    for lease in left.leases:
        if not is_covered_by(holder_of(lease), holder) and not lost:
            delete_lease(kubernetes.json, lease)
    return ReapResult(tuple(reaped), unreadable=tuple(unreadable))


def reap_run(kubernetes: Kubernetes, run_id: str) -> ReapResult:
    """Undo what one run left; the caller holds the lease that covers it, and knows that it is dead.

    Raises:
        KubernetesError: Something cannot be listed or deleted.
    """
    left = _find_leftovers(kubernetes, None)
    ledgers = [ledger for ledger in left.stored.ledgers if ledger.header.run_id == run_id]
    reaped = [one for ledger in ledgers for one in _reap_ledger(kubernetes, ledger)]
    strays = [] if ledgers else [pod for pod in left.pods if pod.metadata.labels[RUN_LABEL] == run_id]
    reaped += [_undo_stray(kubernetes, run_id, pod) for pod in strays]
    for lease in left.leases:
        if holder_of(lease) == run_id:
            delete_lease(kubernetes.json, lease)
    return ReapResult(tuple(reaped), unreadable=tuple(part for ledger in ledgers for part in ledger.unreadable))


def _find_leftovers(kubernetes: Kubernetes, flow_run: str | None, watched: list[Any] | None = None) -> _Leftovers:
    """Read pods, ledgers and leases, pods first.

    A run writes its ledger before it creates a pod, so a pod without a ledger is a stray.
    """
    pods = _list_pods(kubernetes) if watched is None else watched
    stored = stored_ledgers(kubernetes)
    # If nothing else was left, a lease does no harm until a run wants its node.
    only_leases = watched == [] and not stored.ledgers and not stored.unreadable
    left = _Leftovers(pods, stored, [] if only_leases else _list_leases(kubernetes))
    return left.of_flow_run(flow_run) if flow_run else left


def _list_pods(kubernetes: Kubernetes) -> list[Any]:
    with kubernetes.explained("list our pods"):
        found: list[Any] = kubernetes.core.list_namespaced_pod(
            kubernetes.profile.namespace, label_selector=RUN_LABEL
        ).items
    return found


def _list_leases(kubernetes: Kubernetes) -> list[Any]:
    found = kubernetes.json.request("GET", leases_path(kubernetes.json), act="list leases")["items"]
    return [lease for lease in found if is_game_day_lease(lease["metadata"]["name"])]


def _undo_stray(kubernetes: Kubernetes, run_id: str, pod: Any) -> Reaped:
    """Delete a pod, or its job, that appeared after its ledger had gone.

    A request may stay under way for long while its sender sleeps or dies.
    """
    now, node, undo = kubernetes.clock.now(), pod.spec.node_name, _undo_of_stray(pod)
    entry = Entry(id=STRAY, seq=0, act="create a pod that no ledger names", node=node, undo=undo, expires=now)

    def undone() -> Reaped:
        with PodFollower(kubernetes, run_id) as pods:
            pods.wait_synced()
            done = undo_entry(kubernetes, entry, run_id, pods)
        return Reaped(run_id, entry, done.cleanliness, done.evidence)

    return _kept_if_it_fails(run_id, entry, undone)


def _undo_of_stray(pod: Any) -> Undo:
    """Return the undo of a pod without an entry; the task of an injector's pod has the fault."""
    name, owners = pod.metadata.name, pod.metadata.owner_references or []
    if jobs := [owner.name for owner in owners if owner.kind == "Job"]:
        return DeleteJob(job=jobs[0])
    for variable in pod.spec.containers[0].env or []:
        with suppress(ValueError):
            task = InjectTask.model_validate_json(variable.value or "")
            return TakeOutFault(pod=name, gpu=task.gpu, fault=task.fault)
    return DeletePod(pod=name)


def _reap_ledger(kubernetes: Kubernetes, stored: StoredLedger, lost: list[str] | tuple[()] = ()) -> list[Reaped]:
    run_id, ledger = stored.header.run_id, Ledger.from_stored(kubernetes, stored)
    dirty = [entry for entry in stored.entries if entry.settled is Cleanliness.DIRTY]
    found = [_kept_if_it_fails(run_id, one, partial(_look_again, kubernetes, ledger, one)) for one in dirty]
    if to_undo := stored.open_entries():
        with PodFollower(kubernetes, run_id) as pods:
            pods.wait_synced()
            undos = ((entry, partial(_undo, kubernetes, ledger, entry, pods)) for entry in to_undo)
            found += [_kept_if_it_fails(run_id, entry, undo) for entry, undo in undos if not lost]
    if ledger.all_clean() and not stored.unreadable:
        ledger.delete()
    return found


def _kept_if_it_fails(run_id: str, entry: Entry, undo: Callable[[], Reaped]) -> Reaped:
    """Return the result of an entry; if it raises anything it is unknown and kept, and the next one goes on.

    A fault may come from another package, and the entry's writer may have meant harm.
    """
    try:
        return undo()
    except Exception as error:
        why = f"its undo failed: {type(error).__name__}: {error}; it is kept in ConfigMap {ledger_name(run_id)}"
        return Reaped(run_id, entry, Cleanliness.UNKNOWN, (printable(why),))


def _look_again(kubernetes: Kubernetes, ledger: Ledger, entry: Entry) -> Reaped:
    """Settle a dirty quarantine as clean if a person has lifted it since; every other dirty entry stays."""
    run_id = ledger.header.run_id
    kept = Reaped(run_id, entry, Cleanliness.DIRTY, entry.evidence)
    if not isinstance(entry.undo, RestoreNode) or ledger.fault_on(entry.node) is not Cleanliness.CLEAN:
        return kept
    try:
        node = kubernetes.node_or_none(entry.node or "")
        if node is None or not entry.undo.is_met_by(snapshot(node)):
            return kept
        evidence = (f"read: {entry.node} is no longer quarantined",)
        ledger.settle(entry, Cleanliness.CLEAN, "reaper", evidence)
        ledger.flush()
    except KubernetesError as error:
        return Reaped(run_id, entry, Cleanliness.DIRTY, (*entry.evidence, str(error)))
    return Reaped(run_id, entry, Cleanliness.CLEAN, evidence)


def _undo(kubernetes: Kubernetes, ledger: Ledger, entry: Entry, pods: PodFollower) -> Reaped:
    """Undo and settle one entry; if the ledger cannot be written the entry stays open, and the next one goes on."""
    run_id, until = ledger.header.run_id, quarantine_deadline(kubernetes, ledger, entry, pods)
    done = undo_entry(kubernetes, entry, run_id, pods, ledger=ledger)
    try:
        if until and done.cleanliness is Cleanliness.CLEAN:
            entry, done = _keep_open(entry, done, until)
            ledger.update_undo(entry, entry.undo)
        ledger.settle(entry, done.cleanliness, "reaper", done.evidence)
        ledger.flush()
    except KubernetesError as error:
        # The ledger is gone: another reaper was faster, and found everything clean.
        if error.status != _NOT_FOUND_STATUS:
            return Reaped(run_id, entry, Cleanliness.UNKNOWN, (*done.evidence, str(error)))
    return Reaped(run_id, entry, done.cleanliness, done.evidence, done.injector)


def _keep_open(entry: Entry, done: UndoResult, until: datetime) -> tuple[Entry, UndoResult]:
    """Return the entry and its result as unknown, so that a reap after the detector's time lifts a late quarantine."""
    why = (
        f"the plan lets the detector quarantine {entry.node} until {until:%H:%M:%S} UTC, although the fault is out; "
        "run `gameday reap` after that, which lifts a quarantine that came meanwhile"
    )
    kept = entry.model_copy(update={"undo": entry.undo.model_copy(update={"until": until})})
    return kept, UndoResult(Cleanliness.UNKNOWN, (why, *done.evidence))
