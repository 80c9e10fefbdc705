"""Render the report from the run's folder, whatever happened, and link it in the Prefect UI."""

from __future__ import annotations

from prefect.artifacts import create_markdown_artifact

from gameday.checks.outcome import RunResult, fold_outcome
from gameday.checks.run import run_checks
from gameday.coverage.rendering import RenderedRun, render_apart
from gameday.history.frames import Frames
from gameday.run.record import RunRecord
from gameday.tasks import step_task
from gameday.tasks.artifacts import served_url, where_prefect_answers


@step_task(name="report")
def report(record: RunRecord) -> RunResult:
    """Render report.html, leave the form for people's notes beside it, and show the run in short in Prefect.

    Where the folder cannot be written the result comes from the history in memory: a full disk must not hide a dirty
    cluster.
    """
    try:
        rendered = render_apart(record.folder, served_url((record.folder / "report.html").resolve()))
    except OSError as error:
        history = record.journal.history()
        result = fold_outcome(history, run_checks(record.plan, history, Frames.load(record.folder / "frames")))
        why = f"{result.why} The report cannot be written: {error.filename}: {error.strerror}."
        return result.model_copy(update={"why": why})
    _publish(rendered)
    return rendered.result


def _publish(rendered: RenderedRun) -> None:
    with where_prefect_answers():
        create_markdown_artifact(key="report", markdown=rendered.words, description=rendered.result.why)
