"""After an early stop: wait for the quarantine that a detector may still set for a fault that is out by now.

Taken off before it is set it would stay, on a node that the run calls clean.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gameday.history.events import CordonSeen, FaultInjected, IntentRecorded, RecoveryDisturbed, TaintSeen, WaitStarted
from gameday.ledger.entries import RestoreNode
from gameday.ledger.undo import last_word
from gameday.run.context import Run

_TICK_S = 0.5


def await_late_quarantines(run: Run) -> bool:
    """Wait as long as the plan allows the detector, on every node that is to be given back; whether it waited at all.

    A second signal ends the wait. The reaper, who comes after a kill, does not wait like this.
    """
    nodes = [entry.node for entry in run.ledger.open_entries() if isinstance(entry.undo, RestoreNode) and entry.node]
    until = {node: _may_come_until(run, node) for node in nodes if node in run.nodes}
    return any([_await(run, node, limit) for node, limit in until.items() if limit])


def _await(run: Run, node: str, until: datetime) -> bool:
    if until <= datetime.now(UTC) or _came(run, node):
        return False
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
    expect, went_in = run.plan.expect, _last_went_in(run, node)
    if went_in is None:
        return None
    bounds = [expect.stays_schedulable_for or timedelta(), *(taint.within for taint in expect.taints)]
    return went_in + max(*bounds, expect.cordoned.within if expect.cordoned else timedelta())


def _last_went_in(run: Run, node: str) -> datetime | None:
    """When the last of a node's faults went in.

    An injector that was ended while it started tells it in its last word; of one that left none nothing is known but
    that its fault is not in after now.
    """
    history, found = run.journal.history(), list[datetime]()
    told = {event.intent: event.written_at for event in history.of(RecoveryDisturbed)}
    told |= {event.intent: event.written_at for event in history.of(FaultInjected)}
    for intent in history.of(IntentRecorded):
        if intent.undo != "take-out-fault" or intent.node != node:
            continue
        pod = intent.object.removeprefix("pod/")
        word = last_word(run.pods, pod)
        if written_at := told.get(intent.intent) or (word and word.written_at):
            found.append(written_at)
        elif word.evidence if word else run.pods.seen(pod):
            found.append(datetime.now(UTC))
    return max(found, default=None)


def _came(run: Run, node: str) -> bool:
    """Whether all that the plan expects has been on the node; where it expects nothing, whether anything has."""
    history, expect = run.journal.history(), run.plan.expect
    keys = {seen.taint.key for seen in history.of(TaintSeen) if seen.node == node and seen.present}
    cordoned = any(seen.cordoned for seen in history.of(CordonSeen) if seen.node == node)
    if expect.taints or expect.cordoned:
        return keys >= {taint.key for taint in expect.taints} and (cordoned or expect.cordoned is None)
    return not keys.isdisjoint(run.quarantine_keys)
