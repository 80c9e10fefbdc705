"""The remediation the plan asks for must succeed and leave the node Ready in time."""

from __future__ import annotations

from datetime import timedelta

from gameday.checks.facts import at_most, judge_absence, judge_across_clocks, seconds_text, target_nodes
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import Record, Remediated, StepStarted
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.values.results import Step

ORDER = 70


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    if not plan.recover.repairs_node and history.first(Remediated) is None:
        return []
    return [_of(plan, history, node) for node in target_nodes(history)]


def _of(plan: Plan, history: History, node: str | None) -> Verdict:
    ends = history.about(Remediated, node)
    status, why, seconds = Status.UNKNOWN, "", None
    if not ends:
        status, why = judge_absence(history, Step.RECOVER, f"the end of the remediation of {node}")
    elif not ends[-1][1].ok:
        status, why = Status.BROKEN, f"{ends[-1][1].action} failed: {ends[-1][1].detail}"
    else:
        status, seconds, why = _in_time(history, ends[-1][0], ends[-1][1], plan.recover.within)
    return Verdict(
        check="remediation",
        expectation=f"Remediation {plan.recover.remediation} brings {node or 'the target'} back to Ready",
        bound=at_most(plan.recover.within),
        measured="" if seconds is None else seconds_text(seconds),
        status=status,
        step=Step.RECOVER,
        why=why,
        seconds=seconds,
        evidence=tuple(record.seq for record, _ in ends[-1:]),
        node=node,
    )


def _in_time(history: History, end: Record, done: Remediated, bound: timedelta) -> tuple[Status, float, str]:
    """Judge the remediation's duration from the step's start; without one, by the remediation's own stopwatch."""
    started = next((r for r, e in history.with_times(StepStarted) if e.step == Step.RECOVER), None)
    begin = started.at if started else end.at - timedelta(seconds=done.seconds)
    return judge_across_clocks(history, begin, end.at, bound)
