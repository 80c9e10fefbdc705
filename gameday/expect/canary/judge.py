"""The canary's value during the fault must be what the plan says; QA judges whether it recovers."""

from __future__ import annotations

from gameday.checks.facts import first_fault, judge_absence, stop_reason, target_nodes
from gameday.checks.verdict import Status, Verdict
from gameday.expect.canary import ExpectedMeasurement
from gameday.history.events import CanaryMeasured
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.values.measures import Measure
from gameday.values.results import Step

ORDER = 58


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    return [_of(expected, history, node) for expected in plan.expect.measurements for node in target_nodes(history)]


def baseline_of(history: History, node: str | None, quantity: Measure) -> CanaryMeasured | None:
    """Return the node's last measurement of the quantity before the fault."""
    return _last(history, node, "before", quantity)


def _last(history: History, node: str | None, phase: str, quantity: Measure) -> CanaryMeasured | None:
    about = (node, phase, quantity)
    seen = [event for event in history.of(CanaryMeasured) if (event.node, event.phase, event.measure) == about]
    return seen[-1] if seen else None


def _of(expected: ExpectedMeasurement, history: History, node: str | None) -> Verdict:
    quantity = expected.quantity
    before, during = baseline_of(history, node, quantity), _last(history, node, "during", quantity)
    bound = measured = ""
    if before is None or before.value is None:
        why = before.detail if before else stop_reason(history)
        status, why = Status.UNKNOWN, f"there is no baseline: {why}"
    elif first_fault(history, node) is None:
        status, why = Status.UNKNOWN, f"not reached: {stop_reason(history)}"
    elif during is None:
        status, why = judge_absence(history, Step.VERIFY_TAINT, f"the measurement of {quantity} on {node}")
    elif during.value is None:
        status, why = Status.UNKNOWN, during.detail
    else:
        held = expected.holds_during(during.value, before.value)
        status, why = (Status.HELD, "") if held else (Status.BROKEN, during.detail)
        measured = f"{during.value:.4g} {during.unit}, before {before.value:.4g}"
    if before is not None and before.value is not None:
        bound = expected.bound_during(before.value)
    return Verdict(
        check="canary" if quantity is not Measure.ALL_REDUCE_NODES else "all-reduce",
        expectation=f"On {node or 'the target'}, {expected.expectation}",
        bound=bound,
        measured=measured,
        status=status,
        step=Step.VERIFY_TAINT,
        why=why,
        evidence=tuple(record.seq for record, event in history.with_times(CanaryMeasured) if event in (before, during)),
        node=node,
    )
