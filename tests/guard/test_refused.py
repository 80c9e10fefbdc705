"""A run that was refused before it touched a node does not answer for what somebody else did to it meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gameday.checks.outcome import fold_outcome
from gameday.history.events import Event, IntentRecorded, NodeSeen, Record, Refused, RunEnded
from gameday.history.journal import History
from gameday.values.results import Cleanliness
from tests.guard.observations import node

BEFORE = node("a")
CORDONED = BEFORE.model_copy(update={"unschedulable": True})


def history(undo: str) -> History:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    intent = IntentRecorded(intent="i", act="act", undo=undo, object="pod/p", node="a", expires=at)
    events: list[Event] = [
        NodeSeen(phase="before", snapshot=BEFORE),
        intent,
        Refused(why="somebody cordoned it"),
        NodeSeen(phase="after", snapshot=CORDONED),
        RunEnded(cleanliness=Cleanliness.CLEAN),
    ]
    return History(tuple(Record(seq=n, at=at, monotonic=n, boot="b", event=event) for n, event in enumerate(events)))


@pytest.mark.parametrize(("undo", "dirty"), [("delete-pod", False), ("restore-node", True), ("take-out-fault", True)])
def test_only_a_run_that_may_have_changed_the_node_answers_for_it(undo: str, dirty: bool) -> None:
    assert (fold_outcome(history(undo), []).cleanliness is Cleanliness.DIRTY) is dirty
