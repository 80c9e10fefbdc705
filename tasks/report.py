"""Render the report from the run's folder, whatever happened, and link it in the Prefect UI."""

from __future__ import annotations

from datetime import UTC, datetime

from prefect.artifacts import create_link_artifact, create_table_artifact
from pydantic import TypeAdapter

from gameday.checks.outcome import RunResult, fold_outcome
from gameday.checks.run import run_checks
from gameday.checks.verdict import Verdict
from gameday.coverage.run_row import render_run
from gameday.history.frames import Frames
from gameday.report.notes import write_form
from gameday.report.render import Rendered
from gameday.run.record import RunRecord
from gameday.tasks import step_task
from gameday.tasks.artifacts import where_prefect_answers


@step_task(name="report")
def report(record: RunRecord) -> RunResult:
    """Render report.html, leave the form for people's notes beside it, and publish verdicts and link as artifacts.

    Where the folder cannot be written the result comes from the history in memory: a full disk must not hide a dirty
    cluster.
    """
    try:
        rendered = render_run(record.folder, datetime.now(UTC))
        write_form(record.folder, "gameday report")
    except OSError as error:
        history = record.journal.history()
        result = fold_outcome(history, run_checks(record.plan, history, Frames.load(record.folder / "frames")))
        why = f"{result.why} The report cannot be written: {error.filename}: {error.strerror}."
        return result.model_copy(update={"why": why})
    _publish(rendered)
    return rendered.result


def _publish(rendered: Rendered) -> None:
    verdicts = TypeAdapter(tuple[Verdict, ...]).validate_json(rendered.verdicts.read_bytes())
    table = [
        {"expectation": v.expectation, "bound": v.bound, "measured": v.measured, "verdict": v.status, "why": v.why}
        for v in verdicts
    ]
    with where_prefect_answers():
        create_table_artifact(key="verdicts", table=table, description=rendered.result.why)
        create_link_artifact(key="report", link=rendered.html.resolve().as_uri(), link_text="game-day report")
