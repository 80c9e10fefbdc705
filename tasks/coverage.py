"""The season's last step: the coverage matrix of its runs' folders, and its artifacts in the Prefect UI."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from prefect.artifacts import create_link_artifact, create_markdown_artifact

from gameday.arms.page import render_comparison
from gameday.coverage.page import render_season
from gameday.coverage.run_row import render_run
from gameday.season.record import SeasonRecord, SeasonResult
from gameday.tasks import step_task
from gameday.tasks.artifacts import where_prefect_answers


@step_task(name="coverage")
def coverage(folder: Path, died: Iterable[Path] = ()) -> SeasonResult:
    """Render coverage.html, coverage.json and the pages of the season's comparisons; link the matrix in the Prefect UI.

    Args:
        folder: The season's folder.
        died: Folders of runs that died, whose reports are rendered again with what the season undid.

    Raises:
        OSError: The folder cannot be written.
    """
    for dead in died:
        if dead.is_dir():
            render_run(dead, datetime.now(UTC))
    for compared in sorted({place.arm.comparison for place in SeasonRecord.load(folder).places if place.arm}):
        render_comparison(folder.parent / compared, datetime.now(UTC))
    rendered = render_season(folder, datetime.now(UTC))
    with where_prefect_answers():
        create_markdown_artifact(key="coverage", markdown=rendered.markdown, description=rendered.result.why)
        create_link_artifact(key="coverage-page", link=rendered.html.resolve().as_uri(), link_text="coverage matrix")
    return rendered.result
