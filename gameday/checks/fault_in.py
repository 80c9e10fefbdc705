"""The fault must have gone in at every target; if it did not, nothing after it was tested."""

from __future__ import annotations

from gameday.checks.facts import judge_absence, targets
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import FaultInjected
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.values.nodes import Target
from gameday.values.results import Step

ORDER = 20


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    return [_at(plan, history, target) for target in targets(history) or (None,)]


def _at(plan: Plan, history: History, target: Target | None) -> Verdict:
    there = history.about(FaultInjected, target.node if target else None)
    found = next(((record, event) for record, event in there if event.target == target), None)
    where = "the target" if target is None else target.node + (f", GPU {target.gpu}" if target.gpu is not None else "")
    # A fault that did not go in says nothing about the detection chain, so the verdict is never 'broken'.
    why = "" if found else judge_absence(history, Step.INJECT, "the fault going in")[1]
    return Verdict(
        check="fault-in",
        expectation=f"The fault {plan.fault.type} goes in on {where}",
        measured=f"in, at layer {found[1].layer}" if found else "",
        status=Status.HELD if found else Status.UNKNOWN,
        step=Step.INJECT,
        why=why,
        evidence=(found[0].seq,) if found else (),
        node=target.node if target else None,
    )
