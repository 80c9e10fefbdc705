"""A guest may taint, cordon or set conditions only on nodes with a fault."""

from __future__ import annotations

from gameday.checks.facts import first_few, stop_reason
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import (
    BystanderChanged,
    BystandersWatched,
    ConditionSeen,
    FaultInjected,
    FaultUndone,
    GuestNamed,
    Record,
)
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.values.results import Step

ORDER = 58


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    named = history.last(GuestNamed)
    faults, watched = history.of(FaultInjected), history.last(BystandersWatched)
    if named is None or _is_every_node_a_target(watched):
        return []
    elsewhere = writes_elsewhere(plan, history)
    if not faults:
        status, why = Status.UNKNOWN, f"not reached: {stop_reason(history)}"
    elif elsewhere:
        status = Status.BROKEN
        why = first_few([f"{event.node}: {event.what} {event.value}" for _, event in elsewhere])
    elif watched is None or not watched.nodes:
        status, why = Status.UNKNOWN, "no node but the targets was watched"
    else:
        status, why = Status.HELD, ""
    count = watched.nodes if watched else 0
    return [
        Verdict(
            check="guest-kept-to-its-nodes",
            expectation=f"The guest {named.name} writes to no node but the targets while the fault is in",
            measured="" if status is Status.UNKNOWN else f"{len(elsewhere)} writes to {count} other nodes",
            status=status,
            step=Step.VERIFY_TAINT,
            why=why,
            evidence=tuple(record.seq for record, _ in elsewhere),
        )
    ]


def _is_every_node_a_target(watched: BystandersWatched | None) -> bool:
    """Return True if the season's other runs break every other node, so that none is left to be written to wrongly."""
    return watched is not None and watched.nodes == 0 and bool(watched.left_out)


def writes_elsewhere(plan: Plan, history: History) -> list[tuple[Record, BystanderChanged]]:
    """Return what was written to other nodes while a fault was in.

    A condition that a node did not have before counts only if it says the same as one that reports the fault, because
    a detector that starts writes all of its conditions to every node.
    """
    faults = history.of(FaultInjected)
    if not faults:
        return []
    begin = min(fault.written_at for fault in faults)
    out = [record.at for record, _ in history.with_times(FaultUndone)]
    end = max(out, default=history.records[-1].at)
    reports = {f"{one.type}={one.status}" for one in plan.expect.conditions}
    reports |= {f"{seen.condition}={seen.status}" for seen in history.of(ConditionSeen) if begin <= seen.at <= end}
    return [
        (record, event)
        for record, event in history.with_times(BystanderChanged)
        if begin <= event.at <= end and (not event.new_condition or event.value in reports)
    ]
