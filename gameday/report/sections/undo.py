"""The undo proof: every change that was announced, done, undone and read back."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from gameday.history.events import FaultInjected, FaultUndone, IntentRecorded, Record
from gameday.report.run_folder import RunFolder
from gameday.values.results import Cleanliness

ORDER = 90
TITLE = "Undo proof"
GROUP = "Safety"


class UndoRow(BaseModel):
    intent: str
    act: str
    undo: str
    object: str
    announced_at: datetime | None
    done_at: datetime | None
    expires: datetime | None
    undone_at: datetime | None
    by: str | None
    cleanliness: Cleanliness
    attempts: int | None
    evidence: tuple[str, ...]


class UndoProof(BaseModel):
    rows: tuple[UndoRow, ...]

    @property
    def absent(self) -> str:
        """The reason why there is nothing to show; empty if there is something."""
        return "" if self.rows else "the run announced no change, so there was nothing to undo"


def build(run: RunFolder) -> UndoProof:
    announced = [_row(run, record, event) for record, event in run.history.with_times(IntentRecorded)]
    known = {row.intent for row in announced}
    orphans = {event.intent: event for event in run.history.of(FaultUndone) if event.intent not in known}
    return UndoProof(rows=(*announced, *(_orphan(run, event) for event in orphans.values())))


def _row(run: RunFolder, record: Record, intent: IntentRecorded) -> UndoRow:
    done = next((event for event in run.history.of(FaultInjected) if event.intent == intent.intent), None)
    undone = [(r, event) for r, event in run.history.with_times(FaultUndone) if event.intent == intent.intent]
    newest = undone[-1] if undone else None
    return UndoRow(
        intent=intent.intent,
        act=intent.act,
        undo=intent.undo,
        object=intent.object,
        announced_at=record.at,
        done_at=done.written_at if done else None,
        expires=intent.expires,
        undone_at=newest[0].at if newest else None,
        by=newest[1].by if newest else None,
        cleanliness=newest[1].cleanliness if newest else Cleanliness.UNKNOWN,
        attempts=sum(event.attempts for _, event in undone) if undone else None,
        evidence=newest[1].evidence if newest else (),
    )


def _orphan(run: RunFolder, event: FaultUndone) -> UndoRow:
    """Return an undo without its announcement (a damaged line); it is shown because it happened."""
    at = next(record.at for record, undone in run.history.with_times(FaultUndone) if undone is event)
    return UndoRow(
        intent=event.intent, act="(not on record)", undo="(not on record)", object=event.node or "(not on record)",
        announced_at=None, done_at=None, expires=None, undone_at=at, by=event.by,
        cleanliness=event.cleanliness, attempts=event.attempts, evidence=event.evidence,
    )  # fmt: skip
