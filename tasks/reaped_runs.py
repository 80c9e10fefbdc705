"""Report dead runs after a reap: complete histories, render and publish reports, settle states, notify people.

A run that was killed can do none of that itself, and nobody may be watching.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.profile import ClusterProfile
from gameday.errors import KubernetesError
from gameday.plain_file import not_written
from gameday.reaper.histories import describe_reap, note_reaped, note_reaped_elsewhere
from gameday.reaper.reap import ReapResult
from gameday.report.message import notice
from gameday.run.record import folder_of_run
from gameday.runs.run_list import ARMS_FILE
from gameday.runs.run_row import render_run
from gameday.tasks.compare import publish_comparison
from gameday.tasks.flow_run import settle_flow_run
from gameday.tasks.publish import notify, publish_folder, safe_words, warn
from gameday.values.results import Cleanliness


def report_reaped(profile: ClusterProfile, result: ReapResult, reports: Path) -> list[str]:
    """Write what a reap changed into each dead run's history, then render, publish and notify as runs do.

    A failure is logged and skipped.

    Args:
        profile: The cluster's profile.
        result: The reap.
        reports: Folder of the runs' own folders.

    Returns:
        The runs with no history in this folder.
    """
    elsewhere = []
    for run_id in result.changed:
        folder = folder_of_run(reports, run_id)
        if (folder / ARMS_FILE).is_file():  # the comparison's own ledger, for the lab's settings
            _publish_again(profile, folder)
            continue
        try:
            noted = note_reaped(folder, result, describe_reap("the reaper", result, run_id))
        except OSError as error:
            warn("the history of run %s cannot be written: %s", run_id, not_written(error, folder))
            noted = False
        if noted:
            _render_again(profile, folder)
        else:
            elsewhere.append(run_id)
    return elsewhere


def report_reaped_elsewhere(kubernetes: Kubernetes, reports: Path) -> None:
    """Report the killed runs that a reaper without access to this folder has undone, as `report_reaped` does."""
    try:
        folders = note_reaped_elsewhere(kubernetes, reports)
    except (KubernetesError, OSError) as error:
        warn("killed runs could not be looked for: %s", error)
        return
    for folder in folders:
        _render_again(kubernetes.profile, folder)


def _render_again(profile: ClusterProfile, folder: Path) -> None:
    try:
        rendered = render_run(folder, datetime.now(UTC))
        if rendered.run.started:
            settle_flow_run(rendered.run.started.flow_run_id, rendered.result)
        publish_folder(profile, folder)
    except Exception as error:  # one run's folder must not cost the others theirs; the text may contain a secret
        warn("the report of run %s could not be rendered again: %s", folder.name, safe_words(error, folder))
    if (folder.parent / ARMS_FILE).is_file():
        _publish_again(profile, folder.parent)


def _publish_again(profile: ClusterProfile, comparison: Path) -> None:
    try:
        publish_comparison(profile, comparison)
    except Exception as error:  # as above
        why = safe_words(error, comparison)
        warn("the page of comparison %s could not be rendered again: %s", comparison.name, why)


def notify_reaped(profile: ClusterProfile, result: ReapResult, reports: Path) -> None:
    """Report as `report_reaped` does, and notify people about the runs with no history in this folder."""
    for run_id in report_reaped(profile, result, reports):
        changed = result.changed[run_id]
        states = {one.cleanliness for one in changed}
        worst = next((state for state in (Cleanliness.DIRTY, Cleanliness.UNKNOWN) if state in states), None)
        warning = f"CLUSTER {worst.upper()}: " if worst else ""
        notify(profile, notice(f"{warning}run {run_id} died and was reaped", [one.describe() for one in changed]))
