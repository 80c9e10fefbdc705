"""The last step of a comparison: its arms side by side on one page, linked in the Prefect UI."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from prefect.artifacts import create_link_artifact

from gameday.arms.page import render_comparison
from gameday.coverage.run_row import render_run
from gameday.season.record import SeasonResult
from gameday.tasks import step_task
from gameday.tasks.artifacts import where_prefect_answers


@step_task(name="compare")
def compare(folder: Path, died: Iterable[Path] = ()) -> SeasonResult:
    """Render comparison.html and comparison.json, and link the page in the Prefect UI.

    Args:
        folder: The comparison's folder.
        died: Folders of game-days that died, whose reports are rendered again with what the comparison undid.

    Raises:
        OSError: The folder cannot be written.
    """
    for dead in died:
        if dead.is_dir():
            render_run(dead, datetime.now(UTC))
    rendered = render_comparison(folder, datetime.now(UTC))
    with where_prefect_answers():
        link = rendered.html.resolve().as_uri()
        create_link_artifact(key="comparison", link=link, link_text="comparison", description=rendered.result.why)
    return rendered.result
