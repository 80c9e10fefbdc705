"""The state of a fault by its history, which may end while the fault goes in."""

from __future__ import annotations

from enum import StrEnum

from gameday.checks.undo_proof import undo_state
from gameday.history.events import FaultInjected, FaultUndone, IntentRecorded, Record, StepEnded
from gameday.history.journal import History
from gameday.values.results import Cleanliness, Step, StepOutcome

TAKES_OUT_FAULT = "take-out-fault"
"""Kind of the ledger's entry that undoes an injector's pod."""


class FaultState(StrEnum):
    """The state of the fault as a history proves it, worded as a clause."""

    NONE = "no fault went in"
    POSSIBLE = "it is not known whether the fault went in"
    IN = "the fault went in"


def fault_state(history: History, node: str | None = None) -> FaultState:
    """Return how surely a fault went in; NONE only if no injector was sent, or each says that it wrote nothing.

    Args:
        history: The run's history.
        node: The node; None: any.
    """
    if any(node in (None, fault.target.node) for fault in history.of(FaultInjected)):
        return FaultState.IN
    wrote_nothing = {undone.intent for undone in history.of(FaultUndone) if undone.went_in is False}
    sent = {intent.intent for intent in _injectors(history) if node in (None, intent.node)}
    # A line that cannot be read may be an injector's.
    return FaultState.NONE if sent <= wrote_nothing and not history.damaged else FaultState.POSSIBLE


def when_stopped(history: History, last: Record) -> str:
    """Return how far the fault was at a record, such as `while the fault went in`; empty if unknown."""
    earlier = History(history.records[: history.records.index(last) + 1], history.damaged)
    if not _injectors(earlier):
        return "" if history.damaged else "before any fault went in"
    if any(ended.step is Step.INJECT and ended.outcome is StepOutcome.DONE for ended in earlier.of(StepEnded)):
        return "after the fault went in"
    return f"while the fault {'went' if fault_state(history) is FaultState.IN else 'was to go'} in"


def where_fault_is(history: History) -> str:
    """Return where the fault is now, such as `it is out again`; empty if no injector was sent."""
    states = {undo_state(history, intent.intent) for intent in _injectors(history)}
    if not states:
        return ""
    went_in = fault_state(history)
    if went_in is FaultState.NONE:
        return "it did not"
    if Cleanliness.DIRTY in states:
        return "it is still in"
    if states == {Cleanliness.CLEAN}:
        return "it is out again" if went_in is FaultState.IN else "if it did, it is out again"
    return "it is not proved to be out"


def _injectors(history: History) -> list[IntentRecorded]:
    went_in = {fault.intent for fault in history.of(FaultInjected)}
    return [one for one in history.of(IntentRecorded) if one.undo == TAKES_OUT_FAULT or one.intent in went_in]
