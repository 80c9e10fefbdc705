"""Step 2: the intent into the ledger, then the injector pod; the fault is in when the pod is Ready."""

from __future__ import annotations

from gameday.faults.registry import fault_for
from gameday.history.events import FaultInjected
from gameday.ledger.entries import RestoreNode
from gameday.observe.kernel_log import KernelLogTail
from gameday.reaper.late_quarantine import detectors_time
from gameday.run.agents import AGENT_STARTS_WITHIN, put_in_fault
from gameday.run.run import Run
from gameday.run.steps import step
from gameday.tasks import step_task
from gameday.tasks.running_pods import remember_running_pods
from gameday.values.nodes import Target
from gameday.values.results import Hop, Step


@step_task(name="inject")
def inject(run: Run) -> None:
    """Every target's fault, one after the other. A fault that is already in is left as it is, never doubled."""
    with step(run, Step.INJECT, AGENT_STARTS_WITHIN):
        for number, target in enumerate(run.targets):
            if target.node not in run.injected():
                _inject(run, target, number)


def _inject(run: Run, target: Target, number: int) -> None:
    fault = run.plan.fault
    # The detector's taint is our doing: the way back is written down together with the injector's own intent.
    run.intend(
        id=f"quarantine-{number}" if number else "quarantine",
        act="let the detector quarantine the node",
        undo=RestoreNode(
            keys=run.quarantine_keys,
            unschedulable=False if run.plan.expect.cordoned else None,
            awaited=tuple(taint.key for taint in run.plan.expect.taints),
            within=detectors_time(run.plan),
        ),
        node=target.node,
        lasts=run.plan.guardrails.max_duration,
        with_next=True,
    )
    run.log_tails[target.node] = KernelLogTail(run, target.node)
    remember_running_pods(run, target)
    entry, note = put_in_fault(run, target, fault, run.name("inject", number))
    reach = fault_for(fault).reach(fault)
    run.note(
        FaultInjected(
            intent=entry.id,
            target=target,
            fault=fault.type,
            layer=reach.layer,
            written_at=note.written_at,
            evidence=note.evidence,
            does_not_reach=reach.does_not_reach,
            seen_by=reach.seen_by,
        )
    )
    run.hop(Hop.WRITTEN, target.node, note.written_at, f"clock of {target.node}, told by the injector")
