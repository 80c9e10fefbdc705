"""Render the report of an incident beside the runs of the reports folder, and show it in the Prefect UI."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from gameday.faults.registry import parameter_models
from gameday.plain_file import read_plain
from gameday.plan.catalogue import load_shipped
from gameday.post_mortem.page import PostMortem, render_post_mortem
from gameday.report.notes import write_form
from gameday.runs.run_list import list_runs
from gameday.tasks import step_task
from gameday.tasks.artifacts import show_page
from gameday.tasks.publish import copy_out


@step_task(name="render")
def render_incident(folder: Path, publish_to: str | None) -> PostMortem:
    """Render an incident's folder, and publish it if asked.

    Args:
        folder: The incident's own folder.
        publish_to: fsspec URL that the folder is copied to; None: nowhere.

    Raises:
        OSError: The folder cannot be written.
    """
    plans = [loaded.plan for loaded in load_shipped(parameter_models())]
    runs = [run.summary for run in list_runs(folder.parent).runs]
    made = render_post_mortem(folder, plans, runs, datetime.now(UTC))
    write_form(folder, "gameday post-mortem")
    markdown = read_plain(made.markdown).decode()
    show_page("post-mortem", markdown, made.html.resolve().as_uri(), made.story.headline)
    if publish_to:
        copy_out(folder, publish_to, made.html.name)
    return made
