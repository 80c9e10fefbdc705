"""The pages over a whole folder of runs, rendered and shown in the Prefect UI."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from prefect import get_run_logger

from gameday.errors import PublishError
from gameday.faults.registry import parameter_models
from gameday.plan.catalogue import load_shipped
from gameday.report.markdown import escaped
from gameday.runs.catalog import read_catalog
from gameday.runs.digest import digest_of, render_digest
from gameday.runs.index import render_index
from gameday.runs.publish import publish_pages
from gameday.tasks import step_task
from gameday.tasks.artifacts import show_page


@step_task(name="digest")
def render_pages(reports: Path, start: datetime, end: datetime, publish_to: str | None) -> str:
    """Render the digest and the index of runs, and show the digest in the Prefect UI.

    Args:
        reports: Folder of the runs' own folders.
        start: Beginning of the digest's window.
        end: End of the window, and the time of rendering.
        publish_to: fsspec URL that the pages are copied to; None: nowhere.

    Returns:
        The digest's headline.

    Raises:
        OSError: The folder cannot be read or written.
    """
    catalog = read_catalog(reports)
    plans = [loaded.plan for loaded in load_shipped(parameter_models())]
    made = render_digest(reports, digest_of(catalog, plans, start, end), end)
    index = render_index(reports, catalog, end)
    link = made.html.resolve().as_uri()
    if publish_to:
        try:
            link = (
                f"{publish_pages(reports, [made.html.name, made.json.name, index.name], publish_to)}/{made.html.name}"
            )
        except PublishError as error:
            get_run_logger().warning("not published: %s", error)
    show_page("digest", escaped(made.content.headline), link, made.content.headline)
    return made.content.headline
