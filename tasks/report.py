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

    Where the folder cannot be written, or the process that renders is killed, the result comes from the history in
    memory: neither must hide a dirty cluster.
    """
    try:
        rendered = render_apart(record.folder, served_url((record.folder / "report.html").resolve()))
    except OSError as error:
        return _result_in_memory(record, f"{error.filename}: {error.strerror}")
    except RuntimeError as error:
        return _result_in_memory(record, str(error))
    _publish(rendered)
    return rendered.result


def _result_in_memory(record: RunRecord, problem: str) -> RunResult:
    history = record.journal.history()
    result = fold_outcome(history, run_checks(record.plan, history, Frames.load(record.folder / "frames")))
    return result.model_copy(update={"why": f"{result.why} The report cannot be written: {problem}."})


def _publish(rendered: RenderedRun) -> None:
    with where_prefect_answers():
        create_markdown_artifact(key="report", markdown=rendered.words, description=rendered.result.why)
