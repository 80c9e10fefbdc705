"""A season's run that died: what it left is undone while the others go on, and the run's own history says so."""

from __future__ import annotations

from pathlib import Path

from gameday.cluster.kubernetes import Kubernetes
from gameday.errors import KubernetesError
from gameday.reaper.dead_histories import note_reaped, undone_by
from gameday.reaper.reap import ReapResult, reap_run
from gameday.values.results import Cleanliness


def reap_dead(kubernetes: Kubernetes, run_id: str, reports: Path) -> Cleanliness:
    """How the cluster is afterwards, by what was read back; unknown where it could not be told. Raises OSError where
    the run's history cannot be written."""
    folder = reports / run_id
    try:
        result = reap_run(kubernetes, run_id)
    except KubernetesError as error:
        note_reaped(folder, ReapResult(), f"what the run left could not be undone: {error}")
        return Cleanliness.UNKNOWN
    note_reaped(folder, result, undone_by("its season", result, run_id))
    found = {one.cleanliness for one in result.reaped}
    if Cleanliness.DIRTY in found:
        return Cleanliness.DIRTY
    return Cleanliness.CLEAN if result.clean else Cleanliness.UNKNOWN
