"""After an early stop: wait for the quarantine that a detector may still set for a fault that is out by now.

Taken off before it is set it would stay, on a node that the run calls clean.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gameday.errors import KubernetesError
from gameday.history.events import CordonSeen, FaultInjected, IntentRecorded, RecoveryDisturbed, TaintSeen, WaitStarted
from gameday.ledger.entries import Entry, RestoreNode
from gameday.ledger.undo import went_in
from gameday.plan.models import Plan
from gameday.run.run import Run

_TICK_S = 0.5


def detectors_time(plan: Plan) -> timedelta:
    """How long after the fault the plan lets a detector take to quarantine its node."""
    expect = plan.expect
    bounds = [expect.stays_schedulable_for or timedelta(), *(taint.within for taint in expect.taints)]
    return max(*bounds, expect.cordoned.within if expect.cordoned else timedelta())


def await_late_quarantines(run: Run) -> bool:
    """Wait as long as the plan allows the detector, on every node that is to be given back; whether it waited at all.

    A second signal ends the wait. The reaper, who comes after a kill, does not wait like this: it leaves the entry open
    until then.
    """
    waiting = [
        (entry, entry.node, until)
        for entry in run.ledger.open_entries()
        if isinstance(entry.undo, RestoreNode) and entry.node in run.nodes
        if entry.node and (until := _may_come_until(run, entry.node))
    ]
    return any([_await(run, entry, node, until) for entry, node, until in waiting])


def _await(run: Run, entry: Entry, node: str, until: datetime) -> bool:
    if until <= datetime.now(UTC) or _came(run, node):
        return False
    try:
        # Whoever reaps after a kill in this wait finds no injector that could tell when its fault went in.
        run.ledger.learn(entry, entry.undo.model_copy(update={"until": until}))
    except KubernetesError as error:
        run.problem(f"the ledger does not say until when {node} may be quarantined: {error}")
    follower, limit = run.nodes[node], (until - datetime.now(UTC)).total_seconds()
    what = f"the detector's quarantine of {node}, to take it off; the plan allows it until {until:%H:%M:%S} UTC"
    run.note(WaitStarted(step=run.step, what=what, deadline_s=limit))
    with follower.changed:
        while (left := (until - datetime.now(UTC)).total_seconds()) > 0 and not _came(run, node):
            if run.abort.hurried:
                run.problem(f"{node} is given back before {until:%H:%M:%S} UTC: a taint that comes later stays on it")
                break
            follower.changed.wait(min(left, _TICK_S))
    return True


def _may_come_until(run: Run, node: str) -> datetime | None:
    """None where no fault went in."""
    at = _last_went_in(run, node)
    return at + detectors_time(run.plan) if at else None


def _last_went_in(run: Run, node: str) -> datetime | None:
    """When the last of a node's faults went in."""
    history, found = run.journal.history(), list[datetime]()
    told = {event.intent: event.written_at for event in history.of(RecoveryDisturbed)}
    told |= {event.intent: event.written_at for event in history.of(FaultInjected)}
    for intent in history.of(IntentRecorded):
        if intent.undo != "take-out-fault" or intent.node != node:
            continue
        if at := told.get(intent.intent) or went_in(run.pods, intent.object.removeprefix("pod/")):
            found.append(at)
    return max(found, default=None)


def _came(run: Run, node: str) -> bool:
    """Whether all that the plan expects has been on the node; where it expects nothing, whether anything has."""
    history, expect = run.journal.history(), run.plan.expect
    keys = {seen.taint.key for seen in history.of(TaintSeen) if seen.node == node and seen.present}
    cordoned = any(seen.cordoned for seen in history.of(CordonSeen) if seen.node == node)
    if expect.taints or expect.cordoned:
        return keys >= {taint.key for taint in expect.taints} and (cordoned or expect.cordoned is None)
    return not keys.isdisjoint(run.quarantine_keys)
