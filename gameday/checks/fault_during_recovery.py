"""The repair must withstand a second fault that goes in while it is under way."""

from __future__ import annotations

from gameday.checks.facts import judge_absence, seconds_text, target_nodes
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import RecoveryDisturbed, Remediated
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.values.results import Step

ORDER = 71


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    if plan.recover.fault_during is None:
        return []
    return [_of(plan, plan.recover.fault_during.type, history, node) for node in target_nodes(history)]


def _of(plan: Plan, fault: str, history: History, node: str | None) -> Verdict:
    second = next(((r, e) for r, e in history.with_times(RecoveryDisturbed) if e.target.node == node), None)
    repair = next(((r, e) for r, e in history.with_times(Remediated) if e.node == node), None)
    status, why = Status.UNKNOWN, ""
    if second is None:
        # It was not put in, which says nothing about the repair, so the verdict is never 'broken'.
        why = judge_absence(history, Step.RECOVER, f"{fault} going in")[1]
    elif second[1].written_at is None:
        why = f"{fault} did not go in: {'; '.join(second[1].evidence)}"
    elif repair is None:
        status, why = judge_absence(history, Step.RECOVER, f"the end of the remediation of {node}")
    elif repair[1].ok:
        status = Status.HELD
    else:
        status, why = Status.BROKEN, f"with {fault} in, {repair[1].action} failed: {repair[1].detail}"
    return Verdict(
        check="fault-during-recovery",
        expectation=f"Remediation {plan.recover.remediation} of {node or 'the target'} withstands {fault}",
        measured=f"succeeded in {seconds_text(repair[1].seconds)}" if repair and status is Status.HELD else "",
        status=status,
        step=Step.RECOVER,
        why=why,
        evidence=tuple(found[0].seq for found in (second, repair) if found),
        node=node,
    )
