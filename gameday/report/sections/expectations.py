"""The hypothesis table: each expectation, its bound, what was measured, and what that means."""

from __future__ import annotations

from pydantic import BaseModel, Field

from gameday.checks.verdict import Verdict
from gameday.report.narration import narrate
from gameday.report.run import Run

ORDER = 30
TITLE = "Expectations"


class Expectations(BaseModel):
    verdicts: tuple[Verdict, ...]
    on_timeline: frozenset[int] = Field(exclude=True)
    """Records that have a row in the timeline, so that evidence links lead somewhere."""


def build(run: Run) -> Expectations:
    told = frozenset(record.seq for record in run.history.records if narrate(record.event))
    return Expectations(verdicts=run.verdicts, on_timeline=told)
