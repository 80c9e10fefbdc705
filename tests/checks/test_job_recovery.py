"""Verdicts on a job's recovery: resumed, late, lost too much, not interrupted, standing still, and cut off."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from gameday.checks.run import run_checks
from gameday.checks.verdict import Status, Verdict
from gameday.expect.job import ExpectedJob
from gameday.history.events import FaultInjected, JobStepSeen, StepStarted
from gameday.history.frames import Frames
from gameday.values.patterns import steps_in
from gameday.values.results import Step
from tests.report.run_builder import NODE, PLAN, Timed, at, history_of, passing, without

FAULT_S = next((t.event.written_at - at(0)).total_seconds() for t in passing() if isinstance(t.event, FaultInjected))
KEYS = {"namespace": "training", "selector": {"app": "x"}, "resumes_within": "60s"}


def container(uid: str, first: tuple[float, int], last: tuple[float, int], *, ended: bool = False) -> Timed:
    """A container with its first and last step, each with its seconds from the fault."""
    (first_s, first_step), (last_s, last_step) = first, last
    event = JobStepSeen(
        pod=f"pod-{uid}",
        uid=uid,
        restarts=0,
        node=NODE,
        first_step=first_step,
        first_at=at(FAULT_S + first_s),
        last_step=last_step,
        last_at=at(FAULT_S + last_s),
        ended=ended,
    )
    return Timed(FAULT_S + last_s, event)


def judge(*timed: Timed, run: list[Timed] | None = None, **keys: Any) -> dict[str, Verdict]:
    expected = ExpectedJob.model_validate({**KEYS, **keys})
    plan = PLAN.model_copy(update={"expect": PLAN.expect.model_copy(update={"job": expected})})
    history = history_of([*(passing() if run is None else run), *timed])
    return {one.check: one for one in run_checks(plan, history, Frames()) if one.check.startswith("job-")}


OLD = container("a", (-60, 10), (5, 160), ended=True)


def test_time_and_steps_are_counted_from_the_last_step_before_to_the_first_after() -> None:
    found = judge(OLD, container("b", (35, 121), (45, 145)), must_stop=True, lost_steps_at_most=50)
    assert [one.status for one in found.values()] == [Status.HELD] * 3
    assert (found["job-resumes"].seconds, found["job-lost-steps"].measured) == (30.0, "40 steps")
    assert len(found["job-resumes"].evidence) == 2


def test_too_late_and_too_many_steps_are_broken() -> None:
    found = judge(OLD, container("b", (105, 61), (110, 73)), lost_steps_at_most=50)
    assert (found["job-resumes"].status, found["job-resumes"].why) == (Status.BROKEN, "40.0 s too late")
    assert (found["job-lost-steps"].status, found["job-lost-steps"].measured) == (Status.BROKEN, "100 steps")


def test_a_job_that_goes_on_lost_nothing_and_did_not_stop() -> None:
    found = judge(container("a", (-60, 10), (5, 160)), must_stop=True, lost_steps_at_most=0)
    assert found["job-stops"].status is Status.BROKEN
    assert (found["job-resumes"].status, found["job-resumes"].why) == (Status.HELD, "it was not interrupted")
    assert (found["job-lost-steps"].status, found["job-lost-steps"].measured) == (Status.HELD, "0 steps")


def test_a_job_that_runs_and_prints_nothing_stands_still() -> None:
    assert judge(container("a", (-60, 10), (-1, 160)), resumes_within="20s")["job-resumes"].status is Status.BROKEN


def test_without_a_first_step_afterwards_it_is_broken_only_after_the_bound() -> None:
    assert judge(OLD, resumes_within="20s")["job-resumes"].status is Status.BROKEN
    cut = [one for one in passing() if one.seconds <= FAULT_S + 20]
    found = judge(OLD, run=cut, resumes_within="20s", lost_steps_at_most=5)
    assert (found["job-resumes"].status, found["job-lost-steps"].status) == (Status.UNKNOWN, Status.UNKNOWN)


def test_without_steps_or_a_fault_nothing_is_known() -> None:
    assert judge(container("b", (35, 121), (45, 145)))["job-resumes"].status is Status.UNKNOWN
    run = without(passing(), lambda event: isinstance(event, FaultInjected))
    assert judge(OLD, run=run)["job-resumes"].why.startswith("not reached")


RECOVER_S = next(
    one.seconds for one in passing() if isinstance(one.event, StepStarted) and one.event.step is Step.RECOVER
)


def seen(*points: tuple[float, int], uid: str = "a") -> list[Timed]:
    """A container that began with step 0 a hundred seconds before the fault, as it was seen at each of its steps."""
    return [container(uid, (-100, 0), point) for point in points]


UNDER = RECOVER_S - FAULT_S
"""Seconds from the fault to the recovery, which takes it out."""


@pytest.mark.parametrize(("steps", "status"), [(6, Status.HELD), (9, Status.BROKEN)])
def test_a_job_is_slower_by_the_steps_that_it_makes_while_the_fault_is_in(steps: int, status: Status) -> None:
    """A thousand steps a second before, six or nine tenths of it under the fault; later ones do not count."""
    one, two = UNDER / 4, UNDER / 2
    points = [(-1.0, 99_000), (one, 99_100), (two, 99_100 + round(100 * steps * (two - one))), (UNDER + 100, 900_000)]
    found = judge(*seen(*points), slows_below="80%")["job-slows"]
    assert (found.status, found.measured.partition(":")[0]) == (status, f"{steps}0%")
    assert len(found.evidence) == 3


def test_a_pace_that_was_not_seen_is_not_known() -> None:
    assert judge(*seen((-1, 990)), slows_below="80%")["job-slows"].why.startswith("too few steps were seen while")
    assert judge(*seen((-1, 990), (UNDER / 4, 1000)), slows_below="80%")["job-slows"].status is Status.UNKNOWN
    assert judge(*seen((UNDER / 4, 9), (UNDER / 2, 12)), slows_below="80%")["job-slows"].why.endswith("know their rate")
    run = without(passing(), lambda event: isinstance(event, FaultInjected))
    assert judge(*seen((-1, 990)), run=run, slows_below="80%")["job-slows"].why.startswith("not reached")


def test_every_rank_has_to_be_slower() -> None:
    one, two = UNDER / 4, UNDER / 2
    slow = seen((-1, 99_000), (one, 99_100), (two, 99_100 + round(500 * (two - one))))
    fast = seen((-1, 99_000), (one, 99_100), (two, 99_100 + round(1000 * (two - one))), uid="b")
    assert judge(*slow, slows_below="80%")["job-slows"].status is Status.HELD
    assert judge(*slow, *fast, slows_below="80%")["job-slows"].status is Status.BROKEN


def test_steps_are_read_from_hostile_lines() -> None:
    pattern = r"step (?P<step>[0-9]+)"
    lines = ["step 7 loss 1.2", "no", "", "step " + "9" * 400, "\x1b[31mstep 8\x00", json.dumps({"m": "step 3"})]
    assert steps_in(pattern, lines) == [7, None, None, None, 8, 3]
    assert steps_in(pattern, []) == []


@pytest.mark.parametrize("pattern", [r"step ([0-9]+)", r"(?P<step>[0-9]+", r"(a)(?P<step>[0-9]+)"])
def test_a_pattern_without_its_group_or_with_a_nameless_one_is_refused(pattern: str) -> None:
    with pytest.raises(ValidationError):
        ExpectedJob.model_validate({**KEYS, "step": pattern})
