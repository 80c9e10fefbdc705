"""A game-day's result as that of its arm: what may break, what must, and what no arm may excuse."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gameday.checks.outcome import RunOutcome, RunResult, fold_outcome
from gameday.checks.run import run_checks
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import Aborted, AlertSeen, FaultUndone, RunEnded, TaintSeen
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.runs.arm_result import arm_result
from gameday.values.results import Cleanliness, Step, StepOutcome
from tests.report.run_builder import PLAN, Timed, ended, history_of, passing, replacing, without
from tests.runs.comparison_builders import arm, verdict

NO_ALERT = ended(
    without(passing(), lambda event: isinstance(event, AlertSeen)), Step.AWAIT_ALERT, StepOutcome.BROKEN, "no alert"
)


def judged(timed: list[Timed], **words: list[str]) -> RunResult:
    history = history_of(timed)
    return arm_result(arm("a", **words), history, run_checks(PLAN, history, Frames()))


def test_an_arm_that_names_nothing_has_the_runs_own_result() -> None:
    history = history_of(passing())
    verdicts = run_checks(PLAN, history, Frames())
    assert arm_result(arm("a"), history, verdicts) == fold_outcome(history, verdicts)


def test_what_may_break_does_not_fail_the_run_and_is_told() -> None:
    assert judged(NO_ALERT).outcome is RunOutcome.FAILED
    excused = judged(NO_ALERT, may_break=["alert-fires", "alert-resolves"])
    assert (excused.outcome, excused.exit_code) == (RunOutcome.PASSED, 0)
    assert "2 more need not hold" in excused.why


def test_what_may_break_may_hold_as_well() -> None:
    assert judged(passing(), may_break=["alert-fires"]).outcome is RunOutcome.PASSED


def test_another_expectation_that_breaks_still_fails_the_run() -> None:
    timed = without(NO_ALERT, lambda event: isinstance(event, TaintSeen))
    assert judged(timed, may_break=["alert-fires", "alert-resolves"]).outcome is RunOutcome.FAILED


def test_a_negative_control_whose_expectation_held_fails() -> None:
    found = judged(passing(), must_break=["alert-fires"])
    assert (found.outcome, found.exit_code) == (RunOutcome.FAILED, 1)
    assert found.why == "The negative control controls nothing: alert-fires must break, and held."


def test_a_negative_control_that_broke_passes() -> None:
    found = judged(NO_ALERT, must_break=["alert-fires"], may_break=["alert-resolves"])
    assert found.outcome is RunOutcome.PASSED


def test_a_control_that_nobody_judged_is_unknown() -> None:
    assert judged(passing(), must_break=["no-such-check"]).outcome is RunOutcome.UNKNOWN


def test_no_arm_excuses_a_dirty_cluster() -> None:
    timed = replacing(passing(), lambda event: isinstance(event, RunEnded | FaultUndone), cleanliness=Cleanliness.DIRTY)
    every = sorted({one.check for one in run_checks(PLAN, history_of(timed), Frames())})
    assert judged(timed, may_break=every).exit_code == 4


def test_an_aborted_run_says_nothing_about_its_control() -> None:
    timed = [*passing(), Timed(30.0, Aborted(by="operator", why="SIGINT received"))]
    assert judged(timed, must_break=["alert-fires"]).outcome is RunOutcome.ABORTED


CHECKS = ("a", "b", "c")
VERDICTS = st.lists(
    st.builds(verdict, st.sampled_from(CHECKS), st.sampled_from([Status.HELD, Status.BROKEN, Status.UNKNOWN])),
    min_size=1,
    max_size=6,
)
NAMES = st.sets(st.sampled_from(CHECKS))


@given(VERDICTS, NAMES)
def test_may_break_excuses_what_it_names_and_nothing_else(verdicts: list[Verdict], may: set[str]) -> None:
    history: History = history_of(passing())
    excused = arm_result(arm("a", may_break=sorted(may)), history, verdicts)
    counted = [one.status for one in verdicts if one.status is Status.HELD or one.check not in may]
    assert (excused.outcome is RunOutcome.FAILED) == (Status.BROKEN in counted)
    assert (excused.outcome is RunOutcome.PASSED) == (set(counted) == {Status.HELD})


@given(VERDICTS, NAMES)
def test_a_run_passes_only_if_every_control_broke(verdicts: list[Verdict], must: set[str]) -> None:
    found = arm_result(arm("a", must_break=sorted(must)), history_of(passing()), verdicts)
    broken = {one.check for one in verdicts if one.status is Status.BROKEN}
    if found.outcome is RunOutcome.PASSED:
        assert must <= broken
