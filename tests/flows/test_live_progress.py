"""The progress that a flow run's page shows follows the run's steps."""

from __future__ import annotations

from datetime import UTC, datetime

from gameday.flows.live_progress import progress
from gameday.history.events import Event, Record, RunEnded, StepEnded, StepStarted
from gameday.values.results import Cleanliness, Step, StepOutcome


def records(*events: Event) -> list[Record]:
    at = datetime(2026, 11, 26, 8, 3, 12, tzinfo=UTC)
    return [Record(seq=seq, at=at, monotonic=1, boot="b", event=event) for seq, event in enumerate(events)]


def test_the_newest_step_is_shown_with_its_begin_and_its_bound() -> None:
    begun = StepStarted(step=Step.AWAIT_ALERT, deadline_s=60)
    ended = StepEnded(step=Step.INJECT, outcome=StepOutcome.DONE)
    assert progress(records(ended, begun)) == (100 * 2 / 6, "await alert, since 08:03:12 UTC, at most 60 s")


def test_a_step_without_a_bound_names_none() -> None:
    assert progress(records(StepStarted(step=Step.BASELINE, deadline_s=None))) == (0, "baseline, since 08:03:12 UTC")


def test_an_ended_step_is_shown_with_its_outcome() -> None:
    ended = StepEnded(step=Step.QA_NODE, outcome=StepOutcome.BROKEN)
    assert progress(records(ended)) == (100, "qa node: broken")


def test_a_run_that_ended_early_is_whole_too() -> None:
    ended = StepEnded(step=Step.BASELINE, outcome=StepOutcome.UNKNOWN)
    assert progress(records(ended, RunEnded(cleanliness=Cleanliness.CLEAN))) == (100, "ended, cluster clean")


def test_nothing_new_shows_nothing() -> None:
    assert progress([]) is None
