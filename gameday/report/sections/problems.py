"""The troubles of the run and of its files: a reader must know how far to trust the rest."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from gameday.history.events import Problem
from gameday.report.run_folder import RunFolder
from gameday.text import without_secrets

ORDER = 130
TITLE = "Problems and gaps"
OPEN = True


class ProblemRow(BaseModel):
    at: datetime
    step: str | None
    what: str
    hint: str


class Problems(BaseModel):
    in_run: tuple[ProblemRow, ...]
    in_files: tuple[str, ...]
    damaged_lines: int


def build(run: RunFolder) -> Problems:
    return Problems(
        in_run=tuple(
            ProblemRow(at=record.at, step=event.step, what=without_secrets(event.what), hint=event.hint)
            for record, event in run.history.with_times(Problem)
        ),
        in_files=run.problems,
        damaged_lines=run.history.damaged,
    )
