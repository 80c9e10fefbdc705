"""The canary's verdict: held, broken, and unknown wherever nothing was measured."""

from __future__ import annotations

from typing import Any

from gameday.checks.run import run_checks
from gameday.checks.verdict import Status, Verdict
from gameday.expect.canary import ExpectedAllReduce, ExpectedCanary
from gameday.history.events import CanaryMeasured, FaultInjected
from gameday.history.frames import Frames
from gameday.values.results import Step, StepOutcome
from tests.report.run_builder import NODE, PLAN, Timed, at, ended, history_of, passing, without

EXPECTED = PLAN.model_copy(
    update={"expect": PLAN.expect.model_copy(update={"canary": ExpectedCanary(falls_below=0.5)})}
)


def seen(phase: Any, value: float | None, detail: str = "") -> Timed:
    event = CanaryMeasured(
        node=NODE,
        measure="all-reduce bus bandwidth",
        phase=phase,
        value=value,
        unit="GB/s",
        ok=None,
        detail=detail,
        at=at(0),
    )
    return Timed(0, event)


def judge(*timed: Timed, run: list[Timed] | None = None) -> Verdict:
    found = [
        v for v in run_checks(EXPECTED, history_of([*timed, *(run or passing())]), Frames()) if v.check == "canary"
    ]
    assert len(found) == 1, found
    return found[0]


def test_a_value_below_the_bound_holds_and_the_verdict_names_both_figures() -> None:
    verdict = judge(seen("before", 335.0), seen("during", 40.0))
    assert (verdict.status, verdict.measured) == (Status.HELD, "40 GB/s, before 335")
    assert len(verdict.evidence) == 2


def test_a_value_that_did_not_fall_breaks_it() -> None:
    verdict = judge(seen("before", 335.0), seen("during", 330.0, "2 GPUs"))
    assert (verdict.status, verdict.why) == (Status.BROKEN, "2 GPUs")


def test_without_a_baseline_nothing_is_known() -> None:
    verdict = judge(seen("before", None, "0 GPU(s) of n are free"), seen("during", 40.0))
    assert (verdict.status, "are free" in verdict.why) == (Status.UNKNOWN, True)


def test_a_measurement_that_failed_is_unknown() -> None:
    verdict = judge(seen("before", 335.0), seen("during", None, "there is no all_reduce_perf"))
    assert (verdict.status, verdict.why) == (Status.UNKNOWN, "there is no all_reduce_perf")


def test_a_fault_that_never_went_in_is_unknown() -> None:
    run = without(passing(), lambda e: isinstance(e, FaultInjected))
    assert judge(seen("before", 335.0), run=run).status is Status.UNKNOWN


def test_a_step_that_was_cut_off_is_unknown() -> None:
    run = ended(passing(), Step.VERIFY_TAINT, StepOutcome.ABORTED)
    assert judge(seen("before", 335.0), run=run).status is Status.UNKNOWN


def test_a_plan_that_expects_no_canary_is_not_judged() -> None:
    assert not [v for v in run_checks(PLAN, history_of(passing()), Frames()) if v.check == "canary"]


def test_an_all_reduce_over_nodes_is_judged_beside_the_canary_by_its_own_measurements() -> None:
    all_reduce = ExpectedAllReduce.model_validate({"interface": "ib0", "falls_below": "25%"})
    both = EXPECTED.model_copy(update={"expect": EXPECTED.expect.model_copy(update={"all_reduce": all_reduce})})
    measured = [
        Timed(0, one.event.model_copy(update={"measure": "all-reduce over nodes"}))
        for one in (seen("before", 4.0), seen("during", 3.0, "2 nodes"))
    ]
    timed = [seen("before", 335.0), seen("during", 40.0), *measured]
    found = {one.check: one for one in run_checks(both, history_of([*timed, *passing()]), Frames())}
    assert found["canary"].status is Status.HELD
    assert (found["all-reduce"].status, found["all-reduce"].why) == (Status.BROKEN, "2 nodes")
    assert found["all-reduce"].bound == "< 1 GB/s (25% of 4)"
