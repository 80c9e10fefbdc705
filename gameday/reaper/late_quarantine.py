"""The quarantine that a detector may still set for a fault that ended early.

If the undo came before the detector's quarantine, that would stay on the node, and nobody would know its owner. A run
that stops early waits for it. The reaper, which comes after a kill, does not wait: it keeps the entry open until the
detector's time is over.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.nodes import snapshot
from gameday.cluster.pods import PodFollower
from gameday.errors import KubernetesError
from gameday.history.events import CordonSeen, FaultInjected, IntentRecorded, RecoveryDisturbed, TaintSeen, WaitStarted
from gameday.ledger.entries import Entry, RestoreNode
from gameday.ledger.ledger import Ledger
from gameday.ledger.termination_message import injected_at
from gameday.plan.models import Plan
from gameday.run.run import Run

# The wait ends at a change of the node or at a second signal, which is checked this often.
_CHECK_EVERY_S = 0.5


def detector_bound(plan: Plan) -> timedelta:
    """Return how long after the fault the plan lets a detector take to quarantine its node."""
    quarantines = (one.within for one in plan.expect.signals_awaited() if one.quarantines)
    return max(plan.expect.stays_schedulable_for or timedelta(), *quarantines, timedelta())


def quarantine_deadline(kubernetes: Kubernetes, ledger: Ledger, entry: Entry, pods: PodFollower) -> datetime | None:
    """Return until when a detector may still quarantine an entry's node; for the reaper.

    Call it after the faults are out and before the node is restored. The injectors' pods show when the faults went in.
    They go with their undo, so the answer has to be kept in the ledger.

    Args:
        kubernetes: The cluster.
        ledger: The dead run's ledger.
        entry: One of its entries; only an entry that restores a node has a deadline.
        pods: Follows the dead run's pods.

    Returns:
        The deadline; None if it is over, if the quarantine is complete, or if no fault went in.
    """
    restore = entry.undo
    if not isinstance(restore, RestoreNode) or entry.node is None:
        return None
    times = [at for pod in ledger.injectors_on(entry.node) if (at := injected_at(pods, pod))]
    now = kubernetes.clock.now()
    # A node whose clock is ahead keeps the entry open no longer than the plan's bound.
    until = restore.until or (min(max(times), now) + restore.within if times else None)
    if until is None or until <= now:
        return None
    try:
        node = kubernetes.node_or_none(entry.node)
    except KubernetesError:
        return until
    return None if node is None or restore.is_quarantine_complete(snapshot(node)) else until


def await_late_quarantines(run: Run) -> bool:
    """Wait for the detector, as long as the plan allows it, on every node to be returned; for a living run.

    A second signal ends the wait.

    Returns:
        True if it waited at all.
    """
    waited = False
    for entry in run.ledger.open_entries():
        if isinstance(entry.undo, RestoreNode) and entry.node and run.nodes.follows(entry.node):
            at, now = _last_injection(run, entry.node), run.clock.now()
            # A clock that was set back in between makes the wait no longer than the plan's bound.
            if at is not None and _await(run, entry, entry.node, min(at, now) + detector_bound(run.plan)):
                waited = True
    return waited


def _await(run: Run, entry: Entry, node: str, until: datetime) -> bool:
    if until <= run.clock.now() or _is_quarantine_complete(run, node):
        return False
    try:
        # If the run is killed during this wait, the reaper finds no injector that shows when its fault went in.
        run.ledger.update_undo(entry, entry.undo.model_copy(update={"until": until}))
    except KubernetesError as error:
        run.problem(f"the ledger does not record until when {node} may be quarantined: {error}")
    abort, limit = run.record.abort, (until - run.clock.now()).total_seconds()
    what = f"the detector's quarantine of {node}, to take it off; the plan allows it until {until:%H:%M:%S} UTC"
    run.note(WaitStarted(step=run.record.step, what=what, deadline_s=limit))
    run.nodes.wait_until(node, lambda: abort.second_signal or _is_quarantine_complete(run, node), limit, _CHECK_EVERY_S)
    if abort.second_signal and not _is_quarantine_complete(run, node) and until > run.clock.now():
        run.problem(f"{node} is given back before {until:%H:%M:%S} UTC: a taint that comes later stays on it")
    return True


def _last_injection(run: Run, node: str) -> datetime | None:
    """Return when the run saw that the last of a node's faults had gone in; None if none did.

    By the run's own clock, which the wait is measured by: the node's may be wrong.
    """
    history, found = run.history(), list[datetime]()
    times = {event.intent: record.at for record, event in history.with_times(RecoveryDisturbed)}
    times |= {event.intent: record.at for record, event in history.with_times(FaultInjected)}
    for intent in history.of(IntentRecorded):
        if intent.undo != "take-out-fault" or intent.node != node:
            continue
        if at := times.get(intent.intent):
            found.append(at)
        elif injected_at(run.pods, intent.object.removeprefix("pod/")):
            found.append(run.clock.now())
    return max(found, default=None)


def _is_quarantine_complete(run: Run, node: str) -> bool:
    """Return True if the node has shown everything that the plan expects, or anything if it expects nothing."""
    history, expect = run.history(), run.plan.expect
    keys = {seen.taint.key for seen in history.of(TaintSeen) if seen.node == node and seen.present}
    cordoned = any(seen.cordoned for seen in history.of(CordonSeen) if seen.node == node)
    if expect.taints or expect.cordoned:
        return keys >= {taint.key for taint in expect.taints} and (cordoned or expect.cordoned is None)
    return not keys.isdisjoint(run.quarantine_keys)
