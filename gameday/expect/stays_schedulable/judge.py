"""A negative control: for as long as the plan says, the fault must not cost the target its place in the pool."""

from __future__ import annotations

from datetime import timedelta

from gameday.checks.facts import first_fault, stop_reason, target_nodes, why_times_mislead
from gameday.checks.guests import why_guest_was_blind
from gameday.checks.verdict import Status, Verdict
from gameday.documents.fields import format_duration
from gameday.history.events import NodeSeen, StepEnded, TaintSeen
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.values.results import Step, StepOutcome

ORDER = 55


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    quiet = plan.expect.stays_schedulable_for
    return [_stays(quiet, history, node) for node in target_nodes(history)] if quiet else []


def _stays(quiet: timedelta, history: History, node: str | None) -> Verdict:
    fault = first_fault(history, node)
    seen: tuple[int, ...] = ()
    if fault is None:
        status, why = Status.UNKNOWN, f"not reached: {stop_reason(history)}"
    else:
        until = fault[1].written_at + quiet
        gained = [
            (record, event)
            for record, event in history.with_times(TaintSeen)
            if event.node == node and event.present and fault[1].written_at <= event.at <= until
        ]
        cordoned = [
            record
            for record, event in history.with_times(NodeSeen)
            if event.snapshot.node == node and event.phase == "during" and event.snapshot.unschedulable
        ]
        seen = tuple(record.seq for record, _ in gained) + tuple(record.seq for record in cordoned)
        found = [str(event.taint) for _, event in gained] + (["cordoned"] if cordoned else [])
        status, why = (Status.BROKEN, ", ".join(found)) if found else _watched(history, node)
    return Verdict(
        check="stays-schedulable",
        expectation=f"{node or 'The target'} stays schedulable: this fault must not quarantine it",
        bound=f"for {format_duration(quiet)}",
        measured="" if status is Status.UNKNOWN else "quarantined" if why else "no new taint, not cordoned",
        status=status,
        step=Step.VERIFY_TAINT,
        why=why,
        evidence=seen + ((fault[0].seq,) if fault else ()),
        node=node,
    )


def _watched(history: History, node: str | None) -> tuple[Status, str]:
    """Return HELD if step and guest watched to the end: only then does seeing nothing prove anything."""
    ended = next((event for event in reversed(history.of(StepEnded)) if event.step is Step.VERIFY_TAINT), None)
    if ended is None or ended.outcome in (StepOutcome.UNKNOWN, StepOutcome.ABORTED, StepOutcome.NOT_REACHED):
        return Status.UNKNOWN, f"the quiet time was not watched to its end: {stop_reason(history)}"
    blind = why_guest_was_blind(history, node, Step.VERIFY_TAINT) or why_times_mislead(history)
    return (Status.UNKNOWN, blind) if blind else (Status.HELD, "")
