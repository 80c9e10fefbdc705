"""Write what a reaper undid into the histories of the runs that left it.

A killed run cannot do that itself. A run that slept until another took it for dead can, and does.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gameday.clock import Clock
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.manifests import RUN_LABEL
from gameday.errors import AdapterError, KubernetesError, LeaseLostError
from gameday.history.events import FaultInjected, FaultUndone, IntentRecorded, Problem, RunEnded, RunStarted
from gameday.history.journal import History, Journal, read_history
from gameday.ledger.entries import DeletePod, Entry, TakeOutFault
from gameday.ledger.lease import CLUSTER_LEASE, held_lease
from gameday.ledger.ledger import ledger_name, stored_ledgers
from gameday.reaper.reap import ReapResult, reap_run
from gameday.run.record import HISTORY_FILE
from gameday.run.run import Run
from gameday.run.unheard_fault import unheard_fault
from gameday.values.results import Cleanliness


def note_reaped(folder: Path, result: ReapResult, problem: str, clock: Clock = Clock()) -> bool:
    """Append what this reap found of a run to the history in its folder.

    Args:
        folder: The run's own folder, named after its id.
        result: The reap.
        problem: The line that introduces it, as from `describe_reap`.
        clock: Stamps the new events.

    Returns:
        False if the folder holds no history.

    Raises:
        OSError: The history cannot be written.
    """
    if not (folder / HISTORY_FILE).is_file():
        return False
    of_run = [one for one in result.reaped if one.run_id == folder.name]
    history = read_history(folder / HISTORY_FILE)
    faults = [fault for one in of_run if (fault := unheard_fault(history, one.entry, one.injector))]
    undone = [
        FaultUndone(
            intent=one.entry.id,
            node=one.entry.node,
            by="reaper",
            cleanliness=one.cleanliness,
            evidence=one.evidence,
            went_in=one.injector.went_in if one.injector else None,
        )
        for one in of_run
    ]
    readable = not any(one.config_map == ledger_name(folder.name) for one in result.unreadable)
    _append(folder, problem, undone, clock, faults, readable=readable)
    return True


def describe_reap(reaper: str, result: ReapResult, run_id: str) -> str:
    """Return in one line what a reap did about a dead run.

    Args:
        reaper: The subject of the line, e.g. "the reaper" or "run x".
        result: The reap.
        run_id: The dead run.
    """
    of_run = [one for one in result.reaped if one.run_id == run_id]
    clean = sum(one.cleanliness is Cleanliness.CLEAN for one in of_run)
    rest = f", and {len(of_run) - clean} more without proof" if clean < len(of_run) else ""
    return f"the run ended without proof that it was undone; {reaper} undid {clean} open changes{rest}"


def reap_season_member(kubernetes: Kubernetes, run_id: str, reports: Path) -> Cleanliness:
    """Undo what a season's dead run left, while the season's other runs go on, and write it into the run's history.

    Returns:
        The worst state that was read back; UNKNOWN if the cluster does not answer.

    Raises:
        OSError: The run's history cannot be written.
    """
    folder = reports / run_id
    try:
        result = reap_run(kubernetes, run_id)
    except KubernetesError as error:
        note_reaped(folder, ReapResult(), f"what the run left could not be undone: {error}", kubernetes.clock)
        return Cleanliness.UNKNOWN
    note_reaped(folder, result, describe_reap("its season", result, run_id), kubernetes.clock)
    if any(one.cleanliness is Cleanliness.DIRTY for one in result.reaped):
        return Cleanliness.DIRTY
    return Cleanliness.CLEAN if result.is_clean else Cleanliness.UNKNOWN


def note_reaped_elsewhere(kubernetes: Kubernetes, reports: Path) -> list[Path]:
    """Note as undone what killed runs left, if a reaper without access to their folders has already undone it.

    Such a run has neither a report nor a ledger left, and nobody holds the cluster, for example because the CronJob's
    reaper came first.

    Args:
        kubernetes: The cluster.
        reports: Folder of the runs' own folders, and of comparisons' folders, which hold those of their runs.

    Returns:
        The folders with histories that were written. A folder that cannot be read or written is skipped, so that the
        others are still done.

    Raises:
        KubernetesError: The cluster does not answer.
        OSError: The folder of reports cannot be listed.
    """
    unfinished = _unfinished(reports)
    # A living run has no report either, but holds the lease from before its first intent.
    if not unfinished or held_lease(kubernetes, CLUSTER_LEASE):
        return []
    ledgers, uid = stored_ledgers(kubernetes), kubernetes.identity().uid
    noted = []
    for folder, history in unfinished.items():
        started = history.first(RunStarted)
        if started is None or started.cluster_uid != uid or ledgers.has(ledger_name(folder.name)):
            continue
        settled = {event.intent for event in history.of(FaultUndone)}
        left = [intent for intent in history.of(IntentRecorded) if intent.intent not in settled]
        proof = _proof_by_absence(ledger_name(folder.name))
        undone = [_undone_by_reaper(intent.intent, intent.node, proof) for intent in left]
        problem = f"the run's history stops before its end; {len(undone)} open changes were undone all the same"
        with suppress(OSError):
            _append(folder, problem, undone, kubernetes.clock, readable=True)
            noted.append(folder)
    return noted


def _unfinished(reports: Path) -> dict[Path, History]:
    """Return the readable histories of runs without a report and an end, by their folders."""
    found: dict[Path, History] = {}
    for path in sorted([*reports.glob(f"*/{HISTORY_FILE}"), *reports.glob(f"*/*/{HISTORY_FILE}")]):
        with suppress(OSError):
            if not (path.parent / "report.html").exists() and not (history := read_history(path)).last(RunEnded):
                found[path.parent] = history
    return found


def reconcile_with_reaper(run: Run) -> None:
    """Note what a reaper undid if this run lost its lease and its ledger is gone; otherwise do nothing.

    This happens if the run slept and another took it for dead. What that reaper undid must not be undone again: a taint
    that is there now may be the quarantine of another run. If one of our pods is still there, it came later, from a
    request that was under way; its entry stays open, and this run undoes it.
    """
    try:
        run.leases.check()
        return
    except LeaseLostError as error:
        lost = str(error)
    try:
        if not run.ledger.stored.is_gone():
            return
        pods_left = _pods_of(run)
    except AdapterError as error:
        run.problem(f"{lost}; whether a reaper undid the run meanwhile could not be asked: {error}")
        return
    run.problem(f"{lost}; a reaper took the run for dead meanwhile and undid everything")
    proof = _proof_by_absence(run.ledger.stored.name)
    for entry in run.ledger.open_entries():
        if _pod_of(entry) not in pods_left:
            run.note(_undone_by_reaper(entry.id, entry.node, proof, "all of its pods are gone"))
            run.ledger.stored.settle(entry, Cleanliness.CLEAN, "reaper", (proof,))


def _proof_by_absence(ledger: str) -> str:
    return f"the ledger {ledger} is gone: a reaper deletes it only once every entry was read back as undone"


def _undone_by_reaper(intent: str, node: str | None, *proof: str) -> FaultUndone:
    return FaultUndone(intent=intent, node=node, by="reaper", cleanliness=Cleanliness.CLEAN, evidence=proof)


def _pods_of(run: Run) -> set[str]:
    """Return the names of the run's current pods; they are listed again, because a watch that slept may be behind."""
    with run.kubernetes.explained("list the run's pods"):
        selector = f"{RUN_LABEL}={run.id}"
        found = run.kubernetes.core.list_namespaced_pod(run.profile.namespace, label_selector=selector).items
    return {pod.metadata.name for pod in found}


def _pod_of(entry: Entry) -> str:
    return entry.undo.pod if isinstance(entry.undo, DeletePod | TakeOutFault) else ""


def _append(
    folder: Path,
    problem: str,
    undone: Sequence[FaultUndone],
    clock: Clock,
    faults: Sequence[FaultInjected] = (),
    *,
    readable: bool,
) -> None:
    """Append a problem, faults and the undos; end the history again if it had ended and all of it is clean now.

    Args:
        folder: The run's own folder.
        problem: The line that introduces the undos.
        undone: The undos.
        clock: Stamps them.
        faults: Faults that went in, but that the run died before noting.
        readable: True if everything in the run's ledger can be read.
    """
    journal = Journal(folder / HISTORY_FILE, clock)
    try:
        journal.append(Problem(step=None, what=problem))
        for fault in faults:
            journal.append(fault)
        for event in undone:
            journal.append(event)
        clean = readable and all(event.cleanliness is Cleanliness.CLEAN for event in undone)
        if journal.history().last(RunEnded) is not None and undone and clean:
            journal.append(RunEnded(cleanliness=Cleanliness.CLEAN))
    finally:
        journal.close()
    if journal.failed:
        raise journal.failed
