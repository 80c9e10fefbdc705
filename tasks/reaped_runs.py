"""After a reap: the dead runs' histories say what was undone, and their reports, their copies and people hear of it.

A run that is killed does none of that itself, and nobody may be looking.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.profile import ClusterProfile
from gameday.coverage.run_row import render_run
from gameday.errors import KubernetesError
from gameday.reaper.histories import describe_reap, note_reaped, note_reaped_elsewhere
from gameday.reaper.reap import ReapResult
from gameday.report.message import notice
from gameday.tasks.publish import publish_folder, tell, warn
from gameday.values.results import Cleanliness


def report_reaped(profile: ClusterProfile, result: ReapResult, reports: Path) -> list[str]:
    """Write what is new of each dead run into its history, render its report, publish it and tell people, as runs do.

    Returns the runs whose histories cannot be reached in this reports folder. Whatever fails is logged and passed over.
    """
    elsewhere = []
    for run_id in result.changed:
        folder = reports / run_id
        try:
            reached = note_reaped(folder, result, describe_reap("the reaper", result, run_id))
        except OSError as error:
            warn("the history of run %s cannot be written: %s", run_id, error.strerror)
            reached = False
        if reached:
            _renew(profile, folder)
        else:
            elsewhere.append(run_id)
    return elsewhere


def report_settled_elsewhere(kubernetes: Kubernetes, reports: Path) -> None:
    """The same for runs that were killed, and undone by a reaper that reaches neither their histories nor people."""
    try:
        found = note_reaped_elsewhere(kubernetes, reports)
    except (KubernetesError, OSError) as error:
        warn("whether other runs were killed could not be told: %s", error)
        return
    for folder in found:
        _renew(kubernetes.profile, folder)


def _renew(profile: ClusterProfile, folder: Path) -> None:
    try:
        render_run(folder, datetime.now(UTC))
        publish_folder(profile, folder)
    except Exception as error:  # one run's folder must not cost the others theirs; the text may hold a secret
        warn("the report of run %s could not be renewed: %s", folder.name, type(error).__name__)


def notify_reaped(profile: ClusterProfile, result: ReapResult, reports: Path) -> None:
    """As `report_reaped`; of runs whose histories are out of reach people are told at least what was undone."""
    for run_id in report_reaped(profile, result, reports):
        news = result.changed[run_id]
        found = {one.cleanliness for one in news}
        left = next((state for state in (Cleanliness.DIRTY, Cleanliness.UNKNOWN) if state in found), None)
        dirt = f"CLUSTER {left.upper()}: " if left else ""
        tell(profile, notice(f"{dirt}run {run_id} died and was reaped", [one.describe() for one in news]))
