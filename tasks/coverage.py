"""The season's last step: the coverage matrix of its runs' folders, shown in the Prefect UI."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from gameday.cluster.profile import ClusterProfile
from gameday.runs.run_row import render_run
from gameday.runs.season_page import render_season
from gameday.runs.season_record import SeasonRecord, SeasonResult
from gameday.tasks import step_task
from gameday.tasks.artifacts import show_page
from gameday.tasks.compare import publish_comparison


@step_task(name="coverage")
def coverage(profile: ClusterProfile, folder: Path, died: Iterable[Path] = ()) -> SeasonResult:
    """Render coverage.html and coverage.json, render and publish the season's comparisons, show the matrix in Prefect.

    Args:
        profile: The cluster's profile; its `publish_to` gets the comparisons' folders.
        folder: The season's folder.
        died: Folders of runs that died; their reports are rendered again with what the season undid.

    Raises:
        OSError: The folder cannot be written.
    """
    for dead in died:
        if dead.is_dir():
            render_run(dead, datetime.now(UTC))
    for compared in sorted({place.arm.comparison for place in SeasonRecord.load(folder).places if place.arm}):
        publish_comparison(profile, folder.parent / compared)
    rendered = render_season(folder, datetime.now(UTC))
    covered = rendered.content
    show_page("coverage", covered.markdown, rendered.html.resolve().as_uri(), covered.result.why)
    return covered.result.with_also(rendered.unwritten)
