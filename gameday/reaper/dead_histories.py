"""What a reaper undid, behind the dead run's own history: a run that was killed can tell nobody what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gameday.cluster.kubernetes import Kubernetes
from gameday.errors import KubernetesError
from gameday.history.events import FaultUndone, IntentRecorded, Problem, RunEnded, RunStarted
from gameday.history.journal import Journal, read_history
from gameday.ledger.lease import CLUSTER_LEASE, holder_of, read_lease
from gameday.ledger.ledger import ledger_name, stored_ledgers
from gameday.reaper.reap import ReapResult
from gameday.values.results import Cleanliness

_HISTORY = "history.jsonl"


def note_reaped(folder: Path, result: ReapResult, told: str) -> bool:
    """Append to the history in a run's folder what this reap found of the run, behind a problem that says `told`.

    False where there is no history to add to. Raises OSError where it cannot be written.
    """
    if not (folder / _HISTORY).is_file():
        return False
    undone = [
        FaultUndone(
            intent=one.entry.id, node=one.entry.node, by="reaper", cleanliness=one.cleanliness, evidence=one.evidence
        )
        for one in result.reaped
        if one.run_id == folder.name
    ]
    _append(folder, told, undone, readable=not any(key.startswith(f"{folder.name}/") for key in result.unreadable))
    return True


def undone_by(whom: str, result: ReapResult, run_id: str) -> str:
    """What is told of a run that died, in one line."""
    count = sum(one.run_id == run_id for one in result.reaped)
    return f"the run ended without proof that it was undone; {whom} saw to {count} open changes in its place"


def settled_elsewhere(kubernetes: Kubernetes, reports: Path) -> list[Path]:
    """Folders of this cluster's runs that were killed and that a reaper has undone which cannot reach them.

    Such a run has no report and no ledger left, and nobody holds the cluster: the CronJob came first, say. What their
    histories leave open is noted as undone. Raises KubernetesError, and OSError where a history cannot be written.
    """
    cut_off = {
        path.parent: history
        for path in sorted(reports.glob(f"*/{_HISTORY}"))
        if not (path.parent / "report.html").exists() and not (history := read_history(path)).last(RunEnded)
    }
    # Only then: a run that lives has no report either, but holds the lease from before its first intent.
    if not cut_off or _somebody_holds(kubernetes):
        return []
    stored, uid = stored_ledgers(kubernetes), kubernetes.identity().uid
    there = {*stored.unreadable, *(ledger_name(one.header.run_id) for one in stored.ledgers)}
    found = []
    for folder, history in cut_off.items():
        started, name = history.first(RunStarted), ledger_name(folder.name)
        if started is None or started.cluster_uid != uid or name in there:
            continue
        settled = {one.intent for one in history.of(FaultUndone)}
        proof = f"the ledger {name} is gone: the reaper deletes one when all of it was read back as undone"
        undone = [
            FaultUndone(intent=one.intent, node=one.node, by="reaper", cleanliness=Cleanliness.CLEAN, evidence=(proof,))
            for one in history.of(IntentRecorded)
            if one.intent not in settled
        ]
        _append(folder, f"the run was killed; a reaper saw to {len(undone)} open changes in its place", undone)
        found.append(folder)
    return found


def _somebody_holds(kubernetes: Kubernetes) -> bool:
    try:
        return holder_of(read_lease(kubernetes, CLUSTER_LEASE)) is not None
    except KubernetesError as error:
        if error.status == 404:
            return False
        raise


def _append(folder: Path, told: str, undone: Sequence[FaultUndone], readable: bool = True) -> None:
    journal = Journal(folder / _HISTORY)
    try:
        journal.append(Problem(step=None, what=told))
        for one in undone:
            journal.append(one)
        clean = readable and all(one.cleanliness is Cleanliness.CLEAN for one in undone)
        if journal.history().last(RunEnded) is not None and undone and clean:
            journal.append(RunEnded(cleanliness=Cleanliness.CLEAN))
    finally:
        journal.close()
    if journal.failed:
        raise journal.failed
