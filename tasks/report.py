"""The report, whatever happened: rendered from the run's folder and linked in the Prefect UI."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from prefect.artifacts import create_link_artifact, create_table_artifact
from pydantic import TypeAdapter

from gameday.checks.outcome import RunResult
from gameday.checks.verdict import Verdict
from gameday.report.render import render
from tasks import step_task


@step_task(name="report")
def report(folder: Path) -> RunResult:
    """Render report.html, and publish the verdict table and the report's link as artifacts. Raises OSError."""
    rendered = render(folder, datetime.now(UTC))
    verdicts = TypeAdapter(tuple[Verdict, ...]).validate_json(rendered.verdicts.read_bytes())
    create_table_artifact(
        key="verdicts",
        table=[
            {"expectation": v.expectation, "bound": v.bound, "measured": v.measured, "verdict": v.status, "why": v.why}
            for v in verdicts
        ],
        description=rendered.result.why,
    )
    create_link_artifact(key="report", link=rendered.html.resolve().as_uri(), link_text="game-day report")
    return rendered.result
