"""The expectations that did not hold, why, and what to do; and problems of the run and of its files."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from gameday.checks.verdict import Status, Verdict
from gameday.history.events import Problem, RunEnded
from gameday.report.doctors_word import DoctorsWord
from gameday.report.next_command import NextCommand, next_command
from gameday.report.run_folder import RunFolder
from gameday.text import without_secrets

ORDER = 61
TITLE = "Problems, and what to do"
OPEN = True
_NOT_HELD = (Status.BROKEN, Status.UNKNOWN)


class ProblemRow(BaseModel):
    at: datetime
    step: str | None
    what: str
    hint: str


class Problems(BaseModel):
    not_held: tuple[Verdict, ...]
    doctor: DoctorsWord | None
    next: NextCommand | None
    in_run: tuple[ProblemRow, ...]
    in_files: tuple[str, ...]
    damaged_lines: int

    @property
    def absent(self) -> str:
        """The reason why there is nothing to show; empty if there is something."""
        return "" if self.not_held or self.next or self.in_run or self.in_files else "none on record"


def build(run: RunFolder) -> Problems:
    not_held = [verdict for verdict in run.verdicts if verdict.status in _NOT_HELD]
    return Problems(
        not_held=tuple(sorted(not_held, key=lambda verdict: _NOT_HELD.index(verdict.status))),
        doctor=run.doctors_word,
        next=next_command(run.started, run.result, ended=run.history.last(RunEnded) is not None),
        in_run=tuple(
            ProblemRow(at=record.at, step=event.step, what=without_secrets(event.what), hint=event.hint)
            for record, event in run.history.with_times(Problem)
        ),
        in_files=run.problems,
        damaged_lines=run.history.damaged,
    )
