"""Step 5: take the fault out, repair the node as the plan says, and wait until the alert is silent again."""

from __future__ import annotations

import math
import time
from datetime import timedelta
from functools import partial

from gameday.agent.task import RemediateTask
from gameday.errors import AdapterError, StepFailedError
from gameday.faults.registry import fault_for, takes_node_down
from gameday.guard.observation import few
from gameday.history.events import RecoveryDisturbed, Remediated
from gameday.ledger.entries import DeletePod, Entry, RestoreNode, TakeOutFault
from gameday.observe.alerts import note_active_alerts
from gameday.observe.signals import await_cleared
from gameday.plan.models import ExpectedAlert, RemediationAction
from gameday.run.agents import AGENT_STARTS_WITHIN, agent_act, intent_id, put_in_fault, run_agent
from gameday.run.drain import pods_to_drain
from gameday.run.run import Run
from gameday.run.steps import StepResult, step
from gameday.tasks import step_task
from gameday.tasks.way_back import intend_way_back
from gameday.values.nodes import NodeSnapshot, Target
from gameday.values.results import Cleanliness, Step

_POLL_S = 0.5
# What must leave the node before its GPUs can be reset, or before a reboot that would kill it.
_DRAINING = (RemediationAction.GPU_RESET, RemediationAction.DRIVER_RESTART, RemediationAction.REBOOT)
_DRAINED_WITHIN = timedelta(seconds=60)
# From the kubelet's last signal to the pod's end in the API.
_ENDS_WITHIN = timedelta(seconds=30)
# kubectl drain's own pause after an eviction that a PodDisruptionBudget refused.
_EVICT_AGAIN_S = 5.0


@step_task(name="recover")
def recover(run: Run) -> None:
    """Undo, remediate, resolved. A node that does not come back is broken; the QA step will say so again."""
    with step(run, Step.RECOVER, run.plan.recover.within) as result:
        _await_nodes_that_went_down(run)
        for entry in run.ledger.open_entries():
            if isinstance(entry.undo, TakeOutFault) and run.undo(entry) is not Cleanliness.CLEAN:
                result.broken(f"the fault on {entry.node} is not provably out")
        for number, target in enumerate(run.targets):
            if run.plan.recover.remediation is not RemediationAction.NONE:
                _remediate(run, result, target, number)
        for target in run.targets:
            for expected in run.plan.expect.alerts:
                _await_resolved(run, result, expected, target.node)
            await_cleared(run, result, target.node)


def _await_nodes_that_went_down(run: Run) -> None:
    """A fault that takes its node down comes out when the node is back; before that nobody there hears of an undo."""
    if not takes_node_down(run.plan.fault):
        return
    for target in run.targets:
        run.wait(f"{target.node} to be Ready again", run.plan.recover.within, partial(_ready, run, target.node))


def _ready(run: Run, node: str) -> bool | None:
    return True if _has_its_gpus(run, run.node_now(node)) else None


def _has_its_gpus(run: Run, now: NodeSnapshot | None) -> bool:
    """Whether the node is Ready with all GPUs that it offered before: its device plugin is back later than its
    kubelet. Those that only a person brings back are not waited for."""
    falls = run.plan.expect.allocatable_falls
    if now is None or now.conditions.get("Ready") != "True":
        return False
    lost = falls is not None and falls.returns_within is None
    return lost or now.allocatable_gpus == run.before[now.node].allocatable_gpus


def _remediate(run: Run, result: StepResult, target: Target, number: int) -> None:
    action, started = run.plan.recover.remediation, time.monotonic()
    boot = run.before[target.node].boot_id
    within = run.plan.recover.within + AGENT_STARTS_WITHIN
    intend_way_back(run, target, number, first=within)
    name = run.name("remediate", number)
    if action in _DRAINING:
        # With the cordon's way back, in one write.
        act, undo = agent_act("remediate", target.node), DeletePod(pod=name)
        run.intend(intent_id(run, name), act, undo, target.node, within, with_next=True)
        if left := _drain(run, target.node):
            _leave_out(run, result, target.node, f"not drained: {few(left)}", time.monotonic() - started)
            return
    second = _disturb(run, target, number)
    try:
        task = RemediateTask(run_id=run.id, node=target.node, gpu=target.gpu, action=action)
        entry, outcome = run_agent(run, name, task, within)
        ok, detail = outcome.ok, outcome.error or "; ".join(outcome.evidence)
        if ok and action is RemediationAction.REBOOT:
            ok, detail = _came_back(run, target.node, boot)
        run.undo(entry)
    except StepFailedError as error:
        ok, detail = False, error.why
    if second and action is not RemediationAction.REBOOT:
        _was_in_to_the_end(run, second)
    run.note(Remediated(node=target.node, action=action, ok=ok, detail=detail, seconds=time.monotonic() - started))
    if not ok:
        result.broken(f"{action} of {target.node} failed: {detail}")
    if second and run.undo(second) is not Cleanliness.CLEAN:
        result.broken(f"the fault during recovery is not provably out of {target.node}")


def _leave_out(run: Run, result: StepResult, node: str, why: str, seconds: float) -> None:
    """What the repair would kill is still there: the node stays as it is, and out of service, until a person has
    looked."""
    action = run.plan.recover.remediation
    run.not_repaired[node] = why
    run.note(Remediated(node=node, action=action, ok=False, detail=why, seconds=seconds))
    result.broken(f"{action} of {node} was left out: {why}")


def _disturb(run: Run, target: Target, number: int) -> Entry | None:
    """Put the plan's second fault in, where it has one; its entry, whether or not it went in."""
    fault = run.plan.recover.fault_during
    if fault is None:
        return None
    name, reach = run.name("disturb", number), fault_for(fault).reach(fault)
    try:
        _, note = put_in_fault(run, target, fault, name)
        written_at, evidence = note.written_at, note.evidence
    except StepFailedError as error:
        written_at, evidence = None, (error.why,)
        run.problem(error.why, error.hint)
    intent = name.removeprefix(f"gd-{run.id}-")
    run.note(
        RecoveryDisturbed(
            intent=intent,
            target=target,
            fault=fault.type,
            layer=reach.layer,
            written_at=written_at,
            evidence=evidence,
        )
    )
    return next((entry for entry in run.ledger.open_entries() if entry.id == intent), None)


def _was_in_to_the_end(run: Run, second: Entry) -> None:
    """A fault that ended by itself disturbed only a part of the repair. (A reboot ends every pod.)"""
    assert isinstance(second.undo, TakeOutFault)
    pod = run.pods.seen(second.undo.pod)
    if pod is None or pod.ended:
        run.problem(
            f"the fault during recovery was out of {second.node} before its remediation had ended",
            "give recover.fault_during a longer hold",
        )


def _drain(run: Run, node: str) -> list[str]:
    """Cordon, then evict what is to leave through the eviction API, so that PodDisruptionBudgets are asked.

    Returns what has not left after the longest time that one of the pods is given to end, or when the recovery's own
    time is up. Cordoned, because a node that no detector tainted would get its pods back at once.
    """
    _cordon(run, node)
    longest = timedelta(seconds=max((pod.grace_s for pod in pods_to_drain(run, node)), default=0))
    within = min(max(_DRAINED_WITHIN, longest + _ENDS_WITHIN), run.plan.recover.within)
    ask_at: dict[str, float] = {}

    def drained() -> bool | None:
        pods = pods_to_drain(run, node)
        for pod in pods:
            if time.monotonic() >= ask_at.get(pod.uid, 0.0):
                accepted = run.kubernetes.evict(pod.namespace, pod.name)
                ask_at[pod.uid] = math.inf if accepted else time.monotonic() + _EVICT_AGAIN_S
        return None if pods else True

    if run.wait(f"pods to leave {node}", within, drained):
        return []
    hint = "a PodDisruptionBudget may forbid it, or recover.within is too short for their grace periods"
    run.problem(f"pods did not leave {node} within {within.total_seconds():g} s", hint)
    return [f"{pod.namespace}/{pod.name}" for pod in pods_to_drain(run, node)]


def _cordon(run: Run, node: str) -> None:
    """Unless it is: who cordoned it before us, takes that off again. The ledger knows before that this one is ours."""
    now = run.node_now(node)
    if now and now.unschedulable:
        return
    for entry in run.ledger.open_entries():
        if isinstance(entry.undo, RestoreNode) and entry.node == node:
            run.ledger.learn(entry, entry.undo.model_copy(update={"unschedulable": False}))
    run.cordoned.add(node)
    run.kubernetes.cordon(node)


def _came_back(run: Run, node: str, boot_before: str) -> tuple[bool, str]:
    def back() -> str | None:
        now = run.node_now(node)
        rebooted = now is not None and now.boot_id and now.boot_id != boot_before
        return now.boot_id if now and rebooted and _has_its_gpus(run, now) else None

    boot = run.wait(f"{node} to reboot and be Ready with its GPUs", run.plan.recover.within, back)
    if boot:
        return True, f"boot id {boot_before} -> {boot}, Ready"
    return False, f"not Ready with its GPUs and a new boot id within {run.plan.recover.within.total_seconds():g} s"


def _await_resolved(run: Run, result: StepResult, expected: ExpectedAlert, node: str) -> None:
    def silent() -> bool | None:
        active = note_active_alerts(run)
        return None if any(a.alert == expected.name and a.node == expected.about(node) for a in active) else True

    try:
        if not run.wait(
            f"alert {expected.name} resolved for {node}", expected.resolves_within, silent, every_s=_POLL_S
        ):
            result.broken(
                f"{expected.name} is still active for {node} after {expected.resolves_within.total_seconds():g} s"
            )
    except AdapterError as error:
        run.problem(f"Prometheus could not be asked whether {expected.name} is resolved: {error}")
        result.unknown(f"{expected.name}: {error}")
