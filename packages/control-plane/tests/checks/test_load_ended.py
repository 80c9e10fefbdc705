"""A load that broke off proves nothing: the run is unknown, never passed."""

from __future__ import annotations

from gameday.checks.outcome import RunOutcome, fold_outcome
from gameday.checks.run import run_checks
from gameday.checks.verdict import Status
from gameday.history.frames import Frames
from gameday_control_plane.checks.load_ended import check
from gameday_control_plane.events import LoadEnded
from tests.report.run_builder import NODE, PLAN, Timed, history_of, passing


def ended(failed: str) -> Timed:
    return Timed(20, LoadEnded(node=NODE, failed=failed))


def test_a_load_that_ran_to_its_end_holds_and_one_that_was_not_waited_for_is_not_judged() -> None:
    (verdict,) = check(PLAN, history_of([*passing(), ended("")]), Frames())
    assert verdict.status is Status.HELD
    assert check(PLAN, history_of(passing()), Frames()) == []


def test_a_load_that_broke_off_makes_a_run_unknown_that_would_have_passed() -> None:
    history = history_of([*passing(), ended("2 client process(es) died")])
    (verdict,) = check(PLAN, history, Frames())
    assert (verdict.status, verdict.why) == (Status.UNKNOWN, "2 client process(es) died")
    before = fold_outcome(history_of(passing()), run_checks(PLAN, history_of(passing()), Frames()))
    after = fold_outcome(history, run_checks(PLAN, history, Frames()))
    assert (before.outcome, after.outcome) == (RunOutcome.PASSED, RunOutcome.UNKNOWN)
