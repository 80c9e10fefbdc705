"""Render the report from the run's folder, however the run ended, and link it in the Prefect UI."""

from __future__ import annotations

import shlex

from prefect.logging import get_logger

from gameday.checks.outcome import RunResult, fold_outcome
from gameday.checks.run import run_checks
from gameday.history.frames import Frames
from gameday.plain_file import NO_PLACE, not_written
from gameday.report.notes import write_form
from gameday.report.render import Rendered
from gameday.report.run_markdown import run_markdown
from gameday.run.record import RunRecord
from gameday.runs.run_row import render_run
from gameday.tasks import step_task
from gameday.tasks.artifacts import served_url, show_markdown


@step_task(name="report")
def report(record: RunRecord) -> RunResult:
    """Render report.html, leave the form for people's notes beside it, and show a summary of the run in Prefect.

    If the folder cannot be written, or drawing fails by a bug of ours, the result comes from the history in memory:
    neither must hide a dirty cluster.
    """
    if not record.journal.is_whole:  # the disk's version would call it killed
        result = _result_in_memory(
            record, "There is no report: the history on the disk stops before its end.", Frames()
        )
        return result.model_copy(update={"has_report": False})
    again = f"`{shlex.join(['gameday', 'report', str(record.folder)])}` draws it"
    try:
        rendered = _render(record)
        page = rendered.html.resolve()
        words = run_markdown(rendered.run, page, served_url(page))
    except OSError as error:
        why = not_written(error, record.folder)
        return _result_with_frames(record, f"The report cannot be written whole: {why}; then {again}.")
    except Exception as error:
        get_logger("gameday").exception("the report cannot be written")
        return _result_with_frames(record, f"The report cannot be written: {type(error).__name__}: {error}; {again}.")
    show_markdown("report", words, rendered.result.why)
    return rendered.result


def _render(record: RunRecord) -> Rendered:
    """Render the report, in the reserved room if there is no other."""
    try:
        return _render_once(record)
    except OSError as error:
        if error.errno not in NO_PLACE:
            raise
        record.journal.release_reserve()
        return _render_once(record)


def _render_once(record: RunRecord) -> Rendered:
    rendered = render_run(record.folder, record.clock.now())
    write_form(record.folder, "gameday report")
    return rendered


def _result_with_frames(record: RunRecord, problem: str) -> RunResult:
    result = _result_in_memory(record, problem, Frames.load(record.folder / "frames"))
    return result.model_copy(update={"has_report": (record.folder / "report.html").exists()})


def _result_in_memory(record: RunRecord, problem: str, frames: Frames) -> RunResult:
    history = record.journal.history()
    result = fold_outcome(history, run_checks(record.plan, history, frames))
    return result.model_copy(update={"why": f"{result.why} {problem}"})
