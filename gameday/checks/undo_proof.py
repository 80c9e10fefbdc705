"""Every mutation the run announced must have been undone, and read back as undone."""

from __future__ import annotations

from gameday.checks.facts import first_few, stop_reason
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import FaultUndone, IntentRecorded
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.values.results import Cleanliness, Step

ORDER = 110


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    intents = list(history.with_times(IntentRecorded))
    states = {intent.intent: undo_state(history, intent.intent) for _, intent in intents}
    clean = sum(state is Cleanliness.CLEAN for state in states.values())
    if not intents:
        status, why = Status.UNKNOWN, f"not reached: {stop_reason(history)}"
    elif Cleanliness.DIRTY in states.values():
        status, why = Status.BROKEN, _named(_intents_of(history, states, Cleanliness.DIRTY), "not undone")
    elif clean < len(states):
        status, why = Status.UNKNOWN, _named(_intents_of(history, states, Cleanliness.UNKNOWN), "no proof of undo")
    else:
        status, why = Status.HELD, ""
    return [
        Verdict(
            check="undo-proof",
            expectation="Every change the run made is undone and read back as undone",
            bound="every change",
            measured=f"{clean} of {len(states)} changes" if intents else "",
            status=status,
            step=None if intents else Step.INJECT,
            why=why,
            evidence=tuple(record.seq for record, _ in intents),
        )
    ]


def undo_state(history: History, intent: str) -> Cleanliness:
    """Return the state that the newest undo of this intent read back; UNKNOWN if none is on record."""
    undone = [event for event in history.of(FaultUndone) if event.intent == intent]
    return undone[-1].cleanliness if undone else Cleanliness.UNKNOWN


def _intents_of(history: History, states: dict[str, Cleanliness], state: Cleanliness) -> list[IntentRecorded]:
    return [intent for intent in history.of(IntentRecorded) if states[intent.intent] is state]


def _named(intents: list[IntentRecorded], grievance: str) -> str:
    return first_few([f"{intent.act} ({intent.object}): {grievance}" for intent in intents])
