"""Step 5: undo the fault, repair the node or let the cluster repair it, and wait until the alerts are silent again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from gameday.agent.task import RemediateTask
from gameday.cluster.drain import Evictions
from gameday.errors import StepFailedError
from gameday.faults.optional import reach_of, takes_node_down
from gameday.guard.observation import first_names
from gameday.history.events import RecoveryDisturbed, Remediated
from gameday.ledger.entries import DeletePod, Entry, TakeOutFault
from gameday.observe.alerts import await_resolved
from gameday.observe.injected_fault import InjectedFault
from gameday.observe.nvml import end_samplers
from gameday.observe.signals import await_ends
from gameday.remediations.registry import remediation_for
from gameday.run.agents import AGENT_START_TIMEOUT, agent_act, inject_fault, intent_id, run_agent
from gameday.run.drain import pods_to_drain
from gameday.run.repair import Repair
from gameday.run.run import Run
from gameday.run.steps import StepResult, step
from gameday.run.targets import ChosenTarget
from gameday.tasks import judged_step
from gameday.tasks.await_repair import await_cluster_repairs, is_back
from gameday.tasks.moments import Moment, happen
from gameday.tasks.move_operands import bring_operands_back, require_operands_to_return, send_operands_away
from gameday.tasks.return_to_service import intend_qa_and_return
from gameday.values.alert_families import fires_until_returned
from gameday.values.nodes import NodeSnapshot
from gameday.values.results import Cleanliness, Step

_DRAIN_TIMEOUT = timedelta(seconds=60)
# From the kubelet's last signal to the pod's end in the API.
_END_MARGIN = timedelta(seconds=30)


@judged_step("recover")
def recover(run: Run, faults: Sequence[InjectedFault]) -> tuple[Repair, ...]:
    """Undo the faults, remediate, and wait until alerts and signals are gone.

    Returns:
        Each target's repair. A node that does not come back breaks the step, and QA will find it.

    Raises:
        StopRunError: The run was stopped, or a server that the step needs does not answer.
    """
    recovery, targets = run.plan.recover, [fault.target for fault in faults]
    bound = recovery.hops.longest if recovery.is_hands_off else recovery.within
    with step(run, Step.RECOVER, bound) as result:
        if recovery.is_hands_off:
            repairs = await_cluster_repairs(run, result, faults)
            _take_out_faults(run, result, [fault.target for fault in faults])
            back = [fault.target for fault in faults if is_back(run, fault)]
        else:
            _await_nodes_that_went_down(run, targets)
            _take_out_faults(run, result, targets)
            end_samplers(run)
            happen(Moment.FAULT_IS_OUT, run)
            repairs, back = tuple(_remediate(run, result, target) for target in targets), targets
        for target in back:
            for expected in run.plan.expect.alerts:
                if recovery.is_hands_off or not fires_until_returned(expected.name):
                    await_resolved(run, result, expected, target.node, [other.node for other in targets])
            if run.nodes.now(target.node):
                await_ends(run, result, target.node)
        happen(Moment.RECOVERED, run, result)
        return repairs


def _take_out_faults(run: Run, result: StepResult, targets: Sequence[ChosenTarget]) -> None:
    of_node = {target.node: target for target in targets}
    for entry in run.ledger.open_entries():
        if not isinstance(entry.undo, TakeOutFault):
            continue
        target = of_node.get(entry.node or "")
        operands = _send_operands_away(run, result, target) if entry.undo.operands and target else None
        if run.undo(entry) is not Cleanliness.CLEAN:
            result.mark_broken(f"the fault on {entry.node} is not provably out")
        if operands and target:
            bring_operands_back(run, result, target, operands)


def _send_operands_away(run: Run, result: StepResult, target: ChosenTarget) -> Entry | None:
    """Send away the operands that keep the fault from being undone; if they stay, the undo is tried anyway."""
    try:
        return send_operands_away(run, target, "operands-undo", AGENT_START_TIMEOUT)
    except StepFailedError as error:
        result.mark_broken(error.why)
        return None


def _await_nodes_that_went_down(run: Run, targets: Sequence[ChosenTarget]) -> None:
    """Wait for nodes that their fault takes down: no agent there can undo it before they are back."""
    if not takes_node_down(run.plan.fault):
        return
    for target in targets:
        run.wait(f"{target.node} to be Ready again", run.plan.recover.within, partial(_is_ready, run, target))


def _is_ready(run: Run, target: ChosenTarget) -> bool | None:
    return True if _has_its_gpus(run, target, run.nodes.now(target.node)) else None


def _has_its_gpus(run: Run, target: ChosenTarget, now: NodeSnapshot | None) -> bool:
    """Return True if the node is Ready with all GPUs that it offered before.

    Its device plugin is back later than its kubelet. GPUs that only a person brings back are not awaited.
    """
    falls = run.plan.expect.allocatable_falls
    if now is None or now.conditions.get("Ready") != "True":
        return False
    stays_lost = falls is not None and falls.returns_within is None
    return stays_lost or now.allocatable_gpus == target.before.allocatable_gpus


def _remediate(run: Run, result: StepResult, target: ChosenTarget) -> Repair:
    if not run.plan.recover.repairs_node:
        return Repair(target)
    started = run.clock.monotonic()
    timeout = run.plan.recover.within + AGENT_START_TIMEOUT
    intend_qa_and_return(run, target, repair=timeout)
    name = run.record.object_name("remediate", target.index)
    if remediation_for(run.plan.recover.remediation).drains_node:
        # Together with the cordon's undo, in one write.
        act, undo = agent_act("remediate", target.node), DeletePod(pod=name)
        run.intend(intent_id(run, name), act, undo, target.node, timeout, defer_write=True)
        if left := _drain(run, target.node):
            return _leave_out(run, result, target, f"not drained: {first_names(left)}", run.clock.monotonic() - started)
    _repair_with_agent(run, result, target, name, timeout, started)
    return Repair(target)


def _repair_with_agent(
    run: Run, result: StepResult, target: ChosenTarget, name: str, timeout: timedelta, started: float
) -> None:
    """Send the agent that repairs the node, with the plan's second fault in meanwhile; note how it went."""
    remediation = remediation_for(run.plan.recover.remediation)
    action = remediation.name
    second = _disturb(run, target)
    operands = None
    try:
        if remediation.needs_idle_gpu:
            require_operands_to_return(run, target.node)
            operands = send_operands_away(run, target, "operands", timeout)
        task = RemediateTask(run_id=run.id, node=target.node, gpu=target.gpu, action=action)
        entry, outcome = run_agent(run, name, task, timeout)
        ok, detail = outcome.ok, outcome.error or "; ".join(outcome.evidence)
        if ok and remediation.takes_node_down:
            ok, detail = _await_reboot(run, target)
        run.undo(entry)
    except StepFailedError as error:
        ok, detail = False, f"{error.why}; {error.hint}" if error.hint else error.why
    if operands:
        bring_operands_back(run, result, target, operands)
    if second and not remediation.takes_node_down:
        _check_held_to_the_end(run, second)
    run.note(Remediated(node=target.node, action=action, ok=ok, detail=detail, seconds=run.clock.monotonic() - started))
    if not ok:
        result.mark_broken(f"{action} of {target.node} failed: {detail}")
    if second and run.undo(second) is not Cleanliness.CLEAN:
        result.mark_broken(f"the fault during recovery is not provably out of {target.node}")


def _leave_out(run: Run, result: StepResult, target: ChosenTarget, why: str, seconds: float) -> Repair:
    """Leave the repair out, because it would kill a pod that is still there; the node stays out of service."""
    action = run.plan.recover.remediation
    run.note(Remediated(node=target.node, action=action, ok=False, detail=why, seconds=seconds))
    result.mark_broken(f"{action} of {target.node} was left out: {why}")
    return Repair(target, left_out_because=why)


def _disturb(run: Run, target: ChosenTarget) -> Entry | None:
    """Inject the plan's second fault, if it has one, and return its entry, even if the fault did not go in."""
    fault = run.plan.recover.fault_during
    if fault is None:
        return None
    name, reach = run.record.object_name("disturb", target.index), reach_of(fault)
    try:
        _, note = inject_fault(run, target, fault, name)
        written_at, evidence = note.written_at, note.evidence
    except StepFailedError as error:
        written_at, evidence = None, (error.why,)
        run.problem(error.why, error.hint)
    intent = intent_id(run, name)
    run.note(
        RecoveryDisturbed(
            intent=intent,
            target=target.target,
            fault=fault.type,
            layer=reach.layer,
            written_at=written_at,
            evidence=evidence,
        )
    )
    return next((entry for entry in run.ledger.open_entries() if entry.id == intent), None)


def _check_held_to_the_end(run: Run, second: Entry) -> None:
    """Note whether the second fault ended by itself, so that it disturbed only part of the repair."""
    assert isinstance(second.undo, TakeOutFault)
    pod = run.pods.seen(second.undo.pod)
    if pod is None or pod.ended:
        run.problem(
            f"the fault during recovery was out of {second.node} before its remediation had ended",
            "give recover.fault_during a longer hold",
        )


def _drain(run: Run, node: str) -> list[str]:
    """Cordon the node, and evict through the eviction API, so that PodDisruptionBudgets are respected.

    Without the cordon, a node that no detector tainted would get its pods back immediately.

    Returns:
        The pods that have not left, as `namespace/name`: after the longest of their grace periods, or at the end of the
        recovery's own time.
    """
    _cordon(run, node)
    longest = timedelta(seconds=max((pod.grace_s for pod in pods_to_drain(run, node)), default=0))
    timeout = min(max(_DRAIN_TIMEOUT, longest + _END_MARGIN), run.plan.recover.within)
    evictions = Evictions(run.kubernetes)

    def is_drained() -> bool | None:
        pods = pods_to_drain(run, node)
        evictions.ask(pods)
        return None if pods else True

    if run.wait(f"pods to leave {node}", timeout, is_drained):
        return []
    hint = "a PodDisruptionBudget may forbid it, or recover.within is too short for their grace periods"
    run.problem(f"pods did not leave {node} within {timeout.total_seconds():g} s", hint)
    return [f"{pod.namespace}/{pod.name}" for pod in pods_to_drain(run, node)]


def _cordon(run: Run, node: str) -> None:
    """Cordon a node that is not cordoned yet; before that, the ledger records that the cordon is ours to lift."""
    now = run.nodes.now(node)
    if now and now.unschedulable:
        return
    for entry in run.ledger.quarantines_of(node):
        run.ledger.update_undo(entry, entry.undo.model_copy(update={"unschedulable": False}))
    run.kubernetes.cordon(node)


def _await_reboot(run: Run, target: ChosenTarget) -> tuple[bool, str]:
    """Wait for the node to come back from a reboot; return True if it did, with the boot ids or what is missing."""
    node, boot_before = target.node, target.before.boot_id

    def new_boot_id() -> str | None:
        now = run.nodes.now(node)
        rebooted = now is not None and now.boot_id and now.boot_id != boot_before
        return now.boot_id if now and rebooted and _has_its_gpus(run, target, now) else None

    boot = run.wait(f"{node} to reboot and be Ready with its GPUs", run.plan.recover.within, new_boot_id)
    if boot:
        return True, f"boot id {boot_before} -> {boot}, Ready"
    return False, f"not Ready with its GPUs and a new boot id within {run.plan.recover.within.total_seconds():g} s"
