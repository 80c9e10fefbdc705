"""The guardrails that kept the game-day from becoming the incident, and who approved it."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from gameday.checks.facts import seconds_text
from gameday.checks.outcome import RunOutcome
from gameday.history.events import (
    ApprovalAnswered,
    ApprovalAsked,
    GuardChecked,
    Refused,
    RunStarted,
    SteadyStateChecked,
    StepStarted,
)
from gameday.report.run_folder import RunFolder
from gameday.report.summary import Noticed, Summary
from gameday.values.results import Cleanliness

ORDER = 87
TITLE = "Safety log"
GROUP = "Safety"


class WorstLook(BaseModel):
    """A guardrail's worst finding in one phase (among equals the last); `at` is its time."""

    measured: str
    ok: bool | None
    why: str
    looks: int
    at: datetime


class GuardrailRow(BaseModel):
    """`during` is None if the guardrail is not looked at again once the fault is in."""

    guardrail: str
    limit: str
    before: WorstLook | None
    during: WorstLook | None


class GuardrailsSection(BaseModel):
    """`state` of the approval: not needed, not answered, approved or turned down."""

    rows: tuple[GuardrailRow, ...]
    looks: int = Field(description="at guardrails, all of them and both phases together")
    gates: tuple[SteadyStateChecked, ...] = Field(description="the steady state before anything was changed")
    undo_proved: tuple[str, datetime] | None = Field(
        description="the newest earlier run of the plan that left the cluster clean"
    )
    contact: str | None
    lock: str
    state: Literal["not needed", "not answered", "approved", "turned down"]
    asked: ApprovalAsked | None
    asked_at: datetime | None
    answer: ApprovalAnswered | None
    answered_at: datetime | None


def build(run: RunFolder) -> GuardrailsSection:
    asked = next(iter(run.history.with_times(ApprovalAsked)), None)
    answered = next(iter(run.history.with_times(ApprovalAnswered)), None)
    rows = _rows(run)
    return GuardrailsSection(
        rows=tuple(rows),
        looks=sum(found.looks for row in rows for found in (row.before, row.during) if found),
        gates=tuple(run.history.of(SteadyStateChecked)),
        undo_proved=next(((past.run_id, past.started) for past in reversed(run.earlier) if _proved(past)), None),
        contact=run.plan.purpose.contact if run.plan else None,
        lock=_lock(run),
        state=_state(asked is not None, answered[1] if answered else None),
        asked=asked[1] if asked else None,
        asked_at=asked[0].at if asked else None,
        answer=answered[1] if answered else None,
        answered_at=answered[0].at if answered else None,
    )


def _proved(past: Summary) -> bool:
    """Return True if the run put something in and took it out again; a refused run proves nothing."""
    broke = past.outcome is not RunOutcome.REFUSED and past.noticed is not Noticed.UNKNOWN
    return broke and past.cleanliness is Cleanliness.CLEAN


def _lock(run: RunFolder) -> str:
    """Return how run or season held the cluster's lease, once the first step began; empty if that is unknown."""
    if refused := run.history.last(Refused):
        return f"refused: {refused.why}"
    started = next(iter(run.history.with_times(RunStarted)), None)
    began = next(iter(run.history.with_times(StepStarted)), None)
    if started is None or began is None:
        return ""
    waited_s = max(0.0, (began[0].at - started[0].at).total_seconds())
    return f"held, with the cluster found free of dead runs, {seconds_text(waited_s)} after the run was started"


def _state(
    asked: bool, answer: ApprovalAnswered | None
) -> Literal["not needed", "not answered", "approved", "turned down"]:
    if answer:
        return "approved" if answer.approved else "turned down"
    return "not answered" if asked else "not needed"


def _rows(run: RunFolder) -> list[GuardrailRow]:
    rows: dict[str, GuardrailRow] = {}
    for record, event in run.history.with_times(GuardChecked):
        row = rows.get(event.guardrail) or GuardrailRow(
            guardrail=event.guardrail, limit=event.limit, before=None, during=None
        )
        found = WorstLook(measured=event.measured, ok=event.ok, why=event.why, looks=event.looks, at=record.at)
        earlier = row.before if event.phase == "before" else row.during
        rows[event.guardrail] = row.model_copy(update={event.phase: _worse(earlier, found)})
    return list(rows.values())


def _worse(earlier: WorstLook | None, found: WorstLook) -> WorstLook:
    """Return the worse finding, or the later of equals: a guardrail that tripped once stays tripped."""
    badness = {True: 0, None: 1, False: 2}
    if earlier is None or badness[found.ok] >= badness[earlier.ok]:
        return found
    return earlier.model_copy(update={"looks": found.looks})
