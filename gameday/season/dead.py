"""A season's run that died: what it left is undone while the others go on, and the run's own history says so."""

from __future__ import annotations

from pathlib import Path

from gameday.cluster.kubernetes import Kubernetes, KubernetesError
from gameday.history.events import Cleanliness, FaultUndone, Problem, RunEnded
from gameday.history.journal import Journal
from gameday.ledger.reaper import ReapResult, reap_run
from gameday.season.record import Place


def reap_dead(kubernetes: Kubernetes, place: Place, reports: Path) -> Cleanliness:
    """How the cluster is afterwards, by what was read back; unknown where it could not be told. Raises OSError where
    the run's history cannot be written."""
    try:
        result = reap_run(kubernetes, place.run_id)
    except KubernetesError as error:
        _note(place, reports, ReapResult(), Problem(step=None, what=f"what the run left could not be undone: {error}"))
        return Cleanliness.UNKNOWN
    told = f"the run ended without proof that it was undone; its season undid {len(result.reaped)} open changes at once"
    _note(place, reports, result, Problem(step=None, what=told))
    found = {one.cleanliness for one in result.reaped}
    if Cleanliness.DIRTY in found:
        return Cleanliness.DIRTY
    return Cleanliness.CLEAN if result.clean else Cleanliness.UNKNOWN


def _note(place: Place, reports: Path, result: ReapResult, told: Problem) -> None:
    """Behind what the run wrote itself; one that wrote nothing has no history to add to."""
    path = reports / place.run_id / "history.jsonl"
    if not path.is_file():
        return
    journal = Journal(path)
    try:
        journal.append(told)
        for one in result.reaped:
            id, node = one.entry.id, one.entry.node
            undone = FaultUndone(intent=id, node=node, by="reaper", cleanliness=one.cleanliness, evidence=one.evidence)
            journal.append(undone)
        if journal.history().last(RunEnded) is not None and result.reaped and result.clean:
            journal.append(RunEnded(cleanliness=Cleanliness.CLEAN))
    finally:
        journal.close()
