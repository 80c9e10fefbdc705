"""The checks of plans that expect nothing to happen: silence proves something only where somebody watched."""

from __future__ import annotations

from datetime import timedelta

from gameday.checks.run import run_checks
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import AlertSeen, FaultInjected, NodeSeen, TaintSeen
from gameday.history.frames import Frames
from gameday.plan.models import Plan
from gameday.values.results import Step, StepOutcome
from tests.report.run_builder import (
    FAULT_AT,
    NODE,
    PLAN,
    Timed,
    at,
    cut_off,
    ended,
    history_of,
    passing,
    replacing,
    without,
)


def control(**expect: object) -> Plan:
    base = {"alerts": (), "taints": (), "stays_schedulable_for": timedelta(seconds=15)}
    return PLAN.model_copy(update={"expect": PLAN.expect.model_copy(update={**base, **expect})})


def judge(timed: list[Timed], check: str, plan: Plan) -> Verdict:
    found = [v for v in run_checks(plan, history_of(timed), Frames()) if v.check == check]
    assert len(found) == 1, found
    return found[0]


def quiet() -> list[Timed]:
    return without(passing(), lambda e: isinstance(e, TaintSeen), lambda e: isinstance(e, AlertSeen))


def test_a_node_that_gains_no_taint_stays_schedulable() -> None:
    verdict = judge(quiet(), "stays-schedulable", control())
    assert (verdict.status, verdict.why) == (Status.HELD, "")


def test_a_taint_in_the_quiet_time_breaks_it_and_is_named() -> None:
    verdict = judge(passing(), "stays-schedulable", control())
    assert verdict.status is Status.BROKEN
    assert "trainy.konduktor.ai/faulty" in verdict.why


def test_a_taint_after_the_quiet_time_is_somebody_elses() -> None:
    late = replacing(passing(), lambda e: isinstance(e, TaintSeen), at=at(120))
    assert judge(late, "stays-schedulable", control()).status is Status.HELD


def test_a_cordon_breaks_it() -> None:
    during = lambda e: isinstance(e, NodeSeen) and e.phase == "during"  # noqa: E731
    seen = next(t.event for t in quiet() if isinstance(t.event, NodeSeen) and t.event.phase == "during")
    cordoned = seen.snapshot.model_copy(update={"unschedulable": True})
    verdict = judge(replacing(quiet(), during, snapshot=cordoned), "stays-schedulable", control())
    assert (verdict.status, verdict.why) == (Status.BROKEN, "cordoned")


def test_silence_nobody_watched_is_unknown() -> None:
    for timed in (
        ended(quiet(), Step.VERIFY_TAINT, StepOutcome.UNKNOWN, "no watch"),
        ended(quiet(), Step.VERIFY_TAINT, StepOutcome.ABORTED),
        without(quiet(), lambda e: isinstance(e, FaultInjected)),
        cut_off(quiet(), 5),
    ):
        assert judge(timed, "stays-schedulable", control()).status is Status.UNKNOWN


def test_only_the_forbidden_severities_break_where_other_alerts_are_allowed() -> None:
    plan = control(allow_other_alerts=True, forbidden_severities=("critical",))
    fired = {"alert": "Other", "state": "firing", "node": NODE, "expected": False, "at": at(FAULT_AT + 3)}
    warning = AlertSeen(labels={"severity": "warning"}, **fired)  # type: ignore[arg-type]
    critical = AlertSeen(labels={"severity": "critical"}, **fired)  # type: ignore[arg-type]
    assert judge([*quiet(), Timed(3.0, warning)], "forbidden-severities", plan).status is Status.HELD
    verdict = judge([*quiet(), Timed(3.0, critical)], "forbidden-severities", plan)
    assert (verdict.status, verdict.why) == (Status.BROKEN, "Other")
    at_baseline = critical.model_copy(update={"at_baseline": True})
    assert judge([*quiet(), Timed(3.0, at_baseline)], "forbidden-severities", plan).status is Status.HELD
