"""The season's last step: the coverage matrix from what its runs left on disk, and its artifacts in the Prefect UI."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from prefect.artifacts import create_link_artifact, create_markdown_artifact

from gameday.coverage.page import render_season
from gameday.coverage.run_row import render_run
from gameday.season.record import SeasonResult
from gameday.tasks import step_task
from gameday.tasks.artifacts import where_prefect_answers


@step_task(name="coverage")
def coverage(folder: Path, died: Iterable[Path] = ()) -> SeasonResult:
    """Render coverage.html and coverage.json, and publish the matrix and its link.

    `died`: folders of runs that rendered their report, if at all, before the season undid what they left.
    """
    for run in died:
        if run.is_dir():
            render_run(run, datetime.now(UTC))
    rendered = render_season(folder, datetime.now(UTC))
    with where_prefect_answers():
        create_markdown_artifact(key="coverage", markdown=rendered.markdown, description=rendered.result.why)
        create_link_artifact(key="coverage-page", link=rendered.html.resolve().as_uri(), link_text="coverage matrix")
    return rendered.result
