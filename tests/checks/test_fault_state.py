"""Whether a fault went in: never denied without a proof."""

from __future__ import annotations

import pytest

from gameday.checks.fault_state import TAKES_OUT_FAULT, FaultState, fault_state
from gameday.checks.outcome import fold_outcome
from gameday.history.events import Aborted, Event, FaultInjected, FaultUndone, IntentRecorded, RunEnded
from gameday.history.journal import History
from gameday.values.results import Cleanliness
from tests.report.run_builder import NODE, Timed, at, history_of, passing

SENT = IntentRecorded(
    intent="inject", act="create agent pod (inject)", undo=TAKES_OUT_FAULT, object="pod/x", node=NODE, expires=at(60)
)
(INJECTED,) = [timed.event for timed in passing() if isinstance(timed.event, FaultInjected)]


def undone(*, went_in: bool | None, cleanliness: Cleanliness = Cleanliness.CLEAN) -> FaultUndone:
    return FaultUndone(intent="inject", node=NODE, by="flow", cleanliness=cleanliness, evidence=(), went_in=went_in)


def history(*events: Event, damaged: int = 0) -> History:
    return History(history_of([Timed(float(second), event) for second, event in enumerate(events)]).records, damaged)


@pytest.mark.parametrize(
    ("events", "damaged", "state"),
    [
        ((), 0, FaultState.NONE),
        ((), 1, FaultState.POSSIBLE),
        ((SENT,), 0, FaultState.POSSIBLE),
        ((SENT, undone(went_in=None)), 0, FaultState.POSSIBLE),  # of a version that did not ask, too
        ((SENT, undone(went_in=False)), 0, FaultState.NONE),
        ((SENT, undone(went_in=False), SENT.model_copy(update={"intent": "inject-1"})), 0, FaultState.POSSIBLE),
        ((SENT, INJECTED), 0, FaultState.IN),
    ],
)
def test_a_fault_is_denied_only_where_no_injector_wrote(
    events: tuple[Event, ...], damaged: int, state: FaultState
) -> None:
    assert fault_state(history(*events, damaged=damaged)) is state


@pytest.mark.parametrize(
    ("undo", "said"),
    [
        (undone(went_in=False), "while the fault was to go in; it did not."),
        (undone(went_in=None), "while the fault was to go in; if it did, it is out again."),
        (undone(went_in=None, cleanliness=Cleanliness.DIRTY), "while the fault was to go in; it is still in; "),
        (
            undone(went_in=None, cleanliness=Cleanliness.UNKNOWN),
            "while the fault was to go in; it is not proved to be out",
        ),
    ],
)
def test_an_abort_says_where_the_fault_is(undo: FaultUndone, said: str) -> None:
    aborted = Aborted(by="operator", why="you pressed Ctrl-C")
    found = fold_outcome(history(SENT, aborted, undo, RunEnded(cleanliness=undo.cleanliness)), [])
    assert found.why.startswith(f"Aborted by operator: you pressed Ctrl-C {said}")
