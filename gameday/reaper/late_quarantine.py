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


def detector_bound(plan: Plan) -> timedelta:
    """Return how long after the fault the plan lets a detector take to quarantine its node."""
    expect = plan.expect
    bounds = [expect.stays_schedulable_for or timedelta(), *(taint.within for taint in expect.taints)]
    return max(*bounds, expect.cordoned.within if expect.cordoned else timedelta())


def await_late_quarantines(run: Run) -> bool:
    """Wait as long as the plan allows the detector, on every node that is to be given back.

    A second signal ends the wait. The reaper, which comes after a kill, does not wait: it leaves the entry open until
    then.

    Returns:
        True where it waited at all.
    """
    waited = False
    for entry in run.ledger.open_entries():
        if isinstance(entry.undo, RestoreNode) and entry.node and run.nodes.follows(entry.node):
            until = _may_come_until(run, entry.node)
            if until is not None and _await(run, entry, entry.node, until):
                waited = True
    return waited


def _await(run: Run, entry: Entry, node: str, until: datetime) -> bool:
    if until <= datetime.now(UTC) or _has_come(run, node):
        return False
    try:
        # A reaper that comes after a kill in this wait finds no injector that says when its fault went in.
        run.ledger.update_undo(entry, entry.undo.model_copy(update={"until": until}))
    except KubernetesError as error:
        run.problem(f"the ledger does not say until when {node} may be quarantined: {error}")
    abort, limit = run.record.abort, (until - datetime.now(UTC)).total_seconds()
    what = f"the detector's quarantine of {node}, to take it off; the plan allows it until {until:%H:%M:%S} UTC"
    run.note(WaitStarted(step=run.record.step, what=what, deadline_s=limit))
    run.nodes.wait_until(node, lambda: abort.second_signal or _has_come(run, node), limit, _TICK_S)
    if abort.second_signal and not _has_come(run, node) and until > datetime.now(UTC):
        run.problem(f"{node} is given back before {until:%H:%M:%S} UTC: a taint that comes later stays on it")
    return True


def _may_come_until(run: Run, node: str) -> datetime | None:
    """Return until when the detector has time; None where no fault went in."""
    at = _last_went_in(run, node)
    return at + detector_bound(run.plan) if at else None


def _last_went_in(run: Run, node: str) -> datetime | None:
    """Return when the last of a node's faults went in; None where none did."""
    history, found = run.history(), list[datetime]()
    times = {event.intent: event.written_at for event in history.of(RecoveryDisturbed)}
    times |= {event.intent: event.written_at for event in history.of(FaultInjected)}
    for intent in history.of(IntentRecorded):
        if intent.undo != "take-out-fault" or intent.node != node:
            continue
        if at := times.get(intent.intent) or went_in(run.pods, intent.object.removeprefix("pod/")):
            found.append(at)
    return max(found, default=None)


def _has_come(run: Run, node: str) -> bool:
    """Return True where all that the plan expects was seen on the node; or anything, if it expects nothing."""
    history, expect = run.history(), run.plan.expect
    keys = {seen.taint.key for seen in history.of(TaintSeen) if seen.node == node and seen.present}
    cordoned = any(seen.cordoned for seen in history.of(CordonSeen) if seen.node == node)
    if expect.taints or expect.cordoned:
        return keys >= {taint.key for taint in expect.taints} and (cordoned or expect.cordoned is None)
    return not keys.isdisjoint(run.quarantine_keys)
