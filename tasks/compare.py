"""The last step of a comparison: its arms side by side on one page, published, and shown in the Prefect UI."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from gameday.cluster.profile import ClusterProfile
from gameday.report.markdown import escaped
from gameday.runs.comparison import Comparison
from gameday.runs.comparison_page import render_comparison
from gameday.runs.pages import RenderedPage
from gameday.runs.run_row import render_run
from gameday.runs.season_record import SeasonResult
from gameday.tasks import step_task
from gameday.tasks.artifacts import show_page
from gameday.tasks.publish import copy_out


@step_task(name="compare")
def compare(profile: ClusterProfile, folder: Path, died: Iterable[Path] = ()) -> SeasonResult:
    """Render comparison.html and comparison.json, publish them, and show them in the Prefect UI.

    Args:
        profile: The cluster's profile; its `publish_to` gets the comparison's folder.
        folder: The comparison's folder.
        died: Folders of game-days that died; their reports are rendered again with what the comparison undid.

    Raises:
        OSError: The folder cannot be written.
    """
    for dead in died:
        if dead.is_dir():
            render_run(dead, datetime.now(UTC))
    rendered, link = publish_comparison(profile, folder)
    result = rendered.content.result
    show_page("comparison", escaped(result.why), link, result.why)
    return result.with_also(rendered.unwritten)


def publish_comparison(profile: ClusterProfile, folder: Path) -> tuple[RenderedPage[Comparison], str]:
    """Render a comparison's page, and copy it with its game-days where the profile's `publish_to` says.

    The game-days are copied once more, because the reports of those that died are newer than their copies.

    Returns:
        The page, and its URL: the copy's, or this machine's if there is none.

    Raises:
        OSError: The folder cannot be written.
    """
    rendered = render_comparison(folder, datetime.now(UTC))
    copy = copy_out(folder, profile.publish_to, rendered.html.name) if profile.publish_to else None
    return rendered, copy or rendered.html.resolve().as_uri()
