"""The cluster must be as the plan assumes before anything is broken; if not, the run measures something else."""

from __future__ import annotations

from gameday.checks.facts import first_few, judge_absence, not_yet, worst_status
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import SteadyStateChecked, StepEnded
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.values.results import Step

ORDER = 10


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    lines = list(history.with_times(SteadyStateChecked))
    failing = [f"{line.name}: {line.detail}" for _, line in lines if line.ok is not True]
    if not lines:
        status, why = judge_absence(history, Step.BASELINE, "a steady-state check")
    elif any(ended.step == Step.BASELINE for ended in history.of(StepEnded)):
        status, why = worst_status(line.ok for _, line in lines), first_few(failing)
    else:
        status, why = Status.UNKNOWN, not_yet(history, "before every gate was checked")
    return [
        Verdict(
            check="steady-state",
            expectation="The cluster is in its steady state before the fault",
            bound="every gate",
            measured=f"{len(lines) - len(failing)} of {len(lines)} gates" if lines else "",
            status=status,
            step=Step.BASELINE,
            why=why,
            evidence=tuple(record.seq for record, _ in lines),
        )
    ]
