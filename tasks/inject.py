"""Step 2: write the intent into the ledger, then create the injector pod; the fault is in when the pod is Ready."""

from __future__ import annotations

from datetime import timedelta

from gameday.errors import StepFailedError
from gameday.faults.optional import needs_of, reach_of
from gameday.history.events import FaultInjected
from gameday.ledger.entries import BringBackOperands, RestoreNode
from gameday.observe.cluster_repair import ClusterRepair
from gameday.observe.injected_fault import InjectedFault
from gameday.observe.kernel_log import KernelLogTail
from gameday.observe.signals import watch_signals
from gameday.reaper.late_quarantine import detector_bound
from gameday.run.agents import AGENT_START_TIMEOUT, inject_fault, injector_pod
from gameday.run.run import Run
from gameday.run.steps import step
from gameday.run.targets import ChosenTarget, Targets
from gameday.tasks import judged_step
from gameday.tasks.moments import Moment, happen
from gameday.tasks.move_operands import GONE_WITHIN, send_operands_away
from gameday.tasks.running_pods import pods_before_fault
from gameday.values.nodes import NodeRole
from gameday.values.results import Cleanliness, Hop, Step


@judged_step("inject")
def inject(run: Run, targets: Targets) -> tuple[InjectedFault, ...]:
    """Put in the plan's settings, then inject its fault into every target, one after the other.

    Raises:
        StopRunError: A fault did not go in, or the run was stopped.
    """
    fault = run.plan.fault
    operands_leave = GONE_WITHIN if needs_of(fault).operands_away else timedelta()
    with step(run, Step.INJECT, operands_leave + AGENT_START_TIMEOUT + fault.longest_injection):
        happen(Moment.FAULT_GOES_IN, run, targets)
        faults = tuple(_inject(run, target) for target in targets)
        happen(Moment.FAULT_IS_IN, run)
        return faults


def _inject(run: Run, target: ChosenTarget) -> InjectedFault:
    fault = run.plan.fault
    hands_off = run.plan.recover.is_hands_off
    if not hands_off and fault.runs_on is NodeRole.GPU:
        _intend_return(run, target)
    tail = KernelLogTail(run, target.node)
    run.background.callback(tail.stop)
    watch_signals(run, target.node)
    pods_before = pods_before_fault(run, target)
    cluster_repair = ClusterRepair(run, target, pods_before) if hands_off else None
    operands, to_undo = None, tuple[str, ...]()
    if needs_of(fault).operands_away:
        work = AGENT_START_TIMEOUT + fault.longest_injection
        operands = send_operands_away(run, target, "operands-inject", work)
    if operands and needs_of(fault).operands_away_to_undo:
        assert isinstance(operands.undo, BringBackOperands)
        to_undo = operands.undo.labels
    entry, note = inject_fault(run, target, fault, injector_pod(run, target.index), to_undo)
    reach = reach_of(fault)
    run.note(
        FaultInjected(
            intent=entry.id,
            target=target.target,
            fault=fault.type,
            layer=reach.layer,
            written_at=note.written_at,
            evidence=note.evidence,
            does_not_reach=reach.does_not_reach,
            seen_by=reach.seen_by,
            memory=note.memory,
        )
    )
    for hop, at in ((Hop.WRITTEN, note.written_at), (Hop.LOGGED, note.logged_at), (Hop.NVML_EVENT, note.nvml_at)):
        if at:
            run.hop(hop, target.node, at, f"clock of {target.node}, reported by the injector")
    if operands and run.undo(operands) is not Cleanliness.CLEAN:
        raise StepFailedError(f"the GPU operator's labels on {target.node} are not as they were: nobody sees the fault")
    if cluster_repair:
        cluster_repair.begin(note.written_at)
    return InjectedFault(target, note.written_at, note.evidence, pods_before, tail, cluster_repair)


def _intend_return(run: Run, target: ChosenTarget) -> None:
    """Record, with the injector's own intent, that the node must be given back: its quarantine is our doing."""
    run.intend(
        id=f"quarantine-{target.index}" if target.index else "quarantine",
        act="let the detector quarantine the node",
        undo=RestoreNode(
            keys=run.quarantine_keys,
            unschedulable=False if run.plan.expect.cordoned else None,
            awaited=tuple(taint.key for taint in run.plan.expect.taints),
            within=detector_bound(run.plan),
        ),
        node=target.node,
        duration=run.plan.guardrails.max_duration,
        defer_write=True,
    )
