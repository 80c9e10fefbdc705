"""Step 2: the intent into the ledger, then the injector pod; the fault is in when the pod is Ready."""

from __future__ import annotations

from datetime import timedelta

from gameday.agent.task import InjectedNote, InjectTask
from gameday.faults.registry import fault_for
from gameday.history.events import FaultInjected, Hop, Step, Target
from gameday.ledger.entries import RestoreNode, TakeOutFault
from gameday.observe.kernel_log import KernelLogTail
from gameday.run.agents import AGENT_STARTS_WITHIN, await_pod, send_agent
from gameday.run.context import Run
from gameday.run.steps import step
from gameday.run.stop import StepFailedError
from tasks import step_task

# The pod's own deadline lies this far behind the fault's: the agent ends the fault, the deadline ends the agent.
_DEADLINE_MARGIN = timedelta(seconds=10)


@step_task(name="inject")
def inject(run: Run) -> None:
    """Every target's fault, one after the other. A fault that is already in is left as it is, never doubled."""
    with step(run, Step.INJECT, AGENT_STARTS_WITHIN):
        for number, target in enumerate(run.targets):
            if target.node not in run.injected():
                _inject(run, target, number)


def _inject(run: Run, target: Target, number: int) -> None:
    fault = run.plan.fault
    parameters = fault.model_dump(mode="json")
    before = run.before[target.node]
    # The detector's taint is our doing: the way back is written down together with the injector's own intent.
    run.intend(
        id=f"quarantine-{number}" if number else "quarantine",
        act="let the detector quarantine the node",
        undo=RestoreNode(keys=run.quarantine_keys, unschedulable=before.unschedulable),
        node=target.node,
        lasts=run.plan.guardrails.max_duration,
        with_next=True,
    )
    run.log_tails[target.node] = KernelLogTail(run, target.node)
    name = run.name("inject", number)
    gpu = target.gpu or 0
    task = InjectTask(run_id=run.id, node=target.node, gpu=gpu, fault=parameters, hold_s=fault.hold.total_seconds())
    entry = send_agent(
        run, name, task, fault.hold + _DEADLINE_MARGIN, TakeOutFault(pod=name, gpu=gpu, fault=parameters)
    )
    pod = await_pod(run, name, f"injector pod {name} Ready", AGENT_STARTS_WITHIN, ready=True)
    if pod is None or not pod.ready:
        state = f"{pod.phase} {pod.reason} {pod.termination or ''}".strip() if pod else "never seen"
        raise StepFailedError(
            f"the fault did not go in on {target.node}: injector pod {name} is {state[:300]}",
            f"kubectl -n {run.profile.namespace} logs {name}",
        )
    note, kind = _injected_note(run, name), fault_for(fault)
    run.note(
        FaultInjected(
            intent=entry.id,
            target=target,
            fault=fault.type,
            layer=kind.layer,
            written_at=note.written_at,
            evidence=note.evidence,
            does_not_reach=kind.does_not_reach,
            seen_by=kind.seen_by,
        )
    )
    run.hop(Hop.WRITTEN, target.node, note.written_at, f"clock of {target.node}, told by the injector")


def _injected_note(run: Run, pod: str) -> InjectedNote:
    """The injector's own words on what it wrote and when."""
    for line in run.kubernetes.pod_log(pod).splitlines():
        try:
            return InjectedNote.model_validate_json(line)
        except ValueError:
            continue
    raise StepFailedError(f"injector pod {pod} is Ready but its log does not say what it wrote")
