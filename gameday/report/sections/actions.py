"""The actions that follow from this run, and those that earlier runs of the plan left open."""

from __future__ import annotations

from pydantic import BaseModel, Field

from gameday.report.notes import ActionItem
from gameday.report.run_folder import RunFolder

ORDER = 62
TITLE = "Actions"
OPEN = True


class ActionRow(BaseModel):
    """An action; its dates are compared with the day on which this run began."""

    action: ActionItem
    run_id: str | None = Field(description="the earlier run that left it open; None: this run's own")
    overdue: bool = Field(description="open, and due before this run")
    retested_here: bool = Field(description="open, and this run is on or after the day it was to be tested again")


class ActionsSection(BaseModel):
    problem: str
    rows: tuple[ActionRow, ...]
    open: int
    proposed: tuple[str, ...] = Field(description="doctor's next steps, while nobody wrote down any of this run's own")

    @property
    def absent(self) -> str:
        """The reason why there is nothing to show; empty if there is something."""
        return "" if self.rows or self.proposed else "nobody has written down yet what is to be done"


def build(run: RunFolder) -> ActionsSection:
    rows = [_row(run, action, None) for action in run.notes.actions]
    rows += [_row(run, one.action, one.run_id) for one in run.carried]
    asked = None if run.notes.actions else run.doctors_word
    return ActionsSection(
        problem=run.notes_problem,
        rows=tuple(rows),
        open=sum(row.action.is_open for row in rows),
        proposed=tuple(dict.fromkeys(one.fix for one in asked.findings if one.fix)) if asked else (),
    )


def _row(run: RunFolder, action: ActionItem, run_id: str | None) -> ActionRow:
    day = run.history.records[0].at.date() if run.history.records else None
    return ActionRow(
        action=action,
        run_id=run_id,
        overdue=bool(action.is_open and day and action.due and action.due < day),
        retested_here=bool(action.is_open and day and run_id and action.retest and action.retest <= day),
    )
