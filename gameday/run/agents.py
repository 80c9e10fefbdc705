"""Send the agent to a node and wait for its result."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from gameday.agent.package_task import PackageTask
from gameday.agent.security import api_account_of, security_of
from gameday.agent.task import (
    AgentResult,
    AllReduceTask,
    CanaryTask,
    DcgmEnginesNote,
    GpuUserNote,
    InjectedNote,
    InjectTask,
    MarkTask,
    QaTask,
    RemediateTask,
    SampleTask,
    notes_in,
    proof_of,
)
from gameday.cluster.manifests import agent_pod
from gameday.cluster.pods import PodSeen
from gameday.errors import StepFailedError
from gameday.faults.gpu import PERSISTENCE_DAEMON, GpuParameters
from gameday.faults.optional import needs_of, takes_node_down
from gameday.ledger.entries import DeletePod, Entry, TakeOutFault, Undo, object_prefix
from gameday.ledger.termination_message import termination_message
from gameday.plan.fault import FaultParameters
from gameday.plan.models import Plan
from gameday.remediations.registry import remediation_for
from gameday.run.run import ReadOnlyRun, Run
from gameday.run.targets import ChosenTarget, physical_gpus
from gameday.values.nodes import NodeRole

AGENT_START_TIMEOUT = timedelta(seconds=60)
"""Time from the pod's creation to its first message, on a node that may have to pull the image. Our own choice."""
# The pod's deadline is this much later than the fault's: the agent ends the fault, the deadline ends the agent.
_DEADLINE_MARGIN = timedelta(seconds=10)

GPU_RESET_HINT = (
    "a run sends the GPU operator's own operands away by itself; set other monitors aside for the run, or give the "
    "plan recover.remediation: reboot"
)
"""The hint if a monitor keeps a GPU open that has to be reset."""
ENGINES_HINT = "docs/faults.md, dcgm_field: the fault goes into one engine, and only that engine's clients see it"
"""The hint if a program runs its own DCGM host engine."""
PRIORITY_CLASS_HINT = (
    "kubectl apply -f deploy/rbac/priority.yaml, or set canary_priority_class in the cluster profile to a class of the "
    "cluster's that preempts nobody"
)
"""The hint for a cluster that does not know the class of our GPU pods that go through the scheduler."""

SAMPLE_EVERY_S = 0.5
"""Seconds between two NVML readings of a target: finer than any scrape. A note of 8 GPUs has about 2 kB, so the
kubelet's log file of 10 MiB (containerLogMaxSize's default) holds about 40 minutes."""

SentTask = InjectTask | MarkTask | QaTask | RemediateTask | CanaryTask | AllReduceTask | SampleTask | PackageTask


def send_agent(
    run: Run,
    name: str,
    task: SentTask,
    duration: timedelta,
    undo: Undo | None = None,
) -> Entry:
    """Write the intent, then create the agent's pod.

    Args:
        run: The run that sends it.
        name: The pod's name.
        task: The agent's order.
        duration: The pod's own deadline.
        undo: The undo of the agent's work; None: deleting the pod is enough.

    Raises:
        KubernetesError: The ledger or the pod cannot be written.
        AbortedError: Somebody asked the run to stop.
    """
    act = agent_act(task.role, task.node)
    entry = run.intend(intent_id(run, name), act, undo or DeletePod(pod=name), task.node, duration)
    run.kubernetes.create_pod(agent_manifest(run, name, task, duration))
    return entry


def mark_task(run: ReadOnlyRun, target: ChosenTarget) -> MarkTask:
    """Return the order to look at a target and to mark its kernel log before anything is broken."""
    resets = remediation_for(run.plan.recover.remediation).needs_idle_gpu
    marker = run.record.log_marker(target.index)
    return MarkTask(
        run_id=run.id,
        node=target.node,
        marker=marker,
        reset_gpu=target.gpu if resets else None,
        gpu_pods=must_slow_a_job(run.plan),
        dcgm_engines=needs_of(run.plan.fault).dcgm,
        needs_dcgmi=run.plan.qa.dcgm_diag is not None and run.plan.recover.gives_node_back,
    )


def must_slow_a_job(plan: Plan) -> bool:
    """Return True if the fault is on a GPU and the plan expects it to slow a job down, which must use that GPU."""
    job = plan.expect.job
    return job is not None and job.slows_below is not None and isinstance(plan.fault, GpuParameters)


def engines_in(mark_log: str) -> DcgmEnginesNote | None:
    """Return the node's DCGM engines as the mark agent saw them; None if it was not asked, or its log is lost."""
    return next(reversed(notes_in(mark_log, DcgmEnginesNote)), None)


def gpu_users_left(mark_log: str, leaving: Collection[str]) -> list[str]:
    """Return the processes that keep a GPU from being reset, a line each: those that cannot be seen, too.

    The persistence daemon does not count: it closes the GPU when asked to.

    Args:
        mark_log: The mark agent's log.
        leaving: UIDs of the pods that leave the node before the reset.
    """
    users = [note.user for note in notes_in(mark_log, GpuUserNote) if note.user.pod not in leaving]
    return [user.line for user in users if PERSISTENCE_DAEMON not in user.command]


def sample_task(run: ReadOnlyRun, target: ChosenTarget) -> SampleTask:
    """Return the order to read a target's NVML until the run is over, or the pod is ended."""
    longest = run.plan.guardrails.max_duration.total_seconds()
    return SampleTask(run_id=run.id, node=target.node, interval_s=SAMPLE_EVERY_S, duration_s=longest)


def samples_nvml(plan: Plan) -> bool:
    """Return True if a run samples NVML on its targets.

    Each reading opens the GPUs for a moment. It must not meet a reset, or the removal of a GPU, at a time that the run
    does not know: by a fault that needs an idle GPU, or by a cluster that repairs. If the fault takes the node down,
    the samples would be lost with it.
    """
    on_gpus = plan.fault.runs_on is NodeRole.GPU
    return on_gpus and not (needs_of(plan.fault).idle_gpu or takes_node_down(plan.fault) or plan.recover.is_hands_off)


def qa_task(run: ReadOnlyRun, target: ChosenTarget) -> QaTask:
    """Return the order to prove a target good."""
    return QaTask(
        run_id=run.id,
        node=target.node,
        marker=run.record.log_marker(target.index),
        proof=proof_of(run.plan.qa),
        expected_gpus=physical_gpus(target.before),
    )


def intent_id(run: ReadOnlyRun, pod: str) -> str:
    """Return the id of the ledger entry for the creation of one of the run's pods."""
    return pod.removeprefix(object_prefix(run.id))


def agent_act(role: str, node: str) -> str:
    """Return the ledger's text for the creation of an agent pod."""
    return f"create agent pod ({role}) on {node}"


def agent_manifest(run: ReadOnlyRun, name: str, task: SentTask, deadline: timedelta) -> dict[str, Any]:
    """Return the pod that carries out the task; its node ends it after `deadline`."""
    return agent_pod(
        name,
        task=task.model_dump_json(),
        role=task.role,
        run_id=run.id,
        node=task.node,
        profile=run.profile,
        deadline=deadline,
        security=security_of(task),
        account=api_account_of(task),
        gpus=task.gpus if isinstance(task, CanaryTask | AllReduceTask) else 0,
        # The run's first pod has this class, so that admission refuses it if the class of the canaries is missing.
        priority_class=run.gpu_pod_template.priority_class if isinstance(task, MarkTask) else None,
    )


def await_pod(run: Run, name: str, what: str, timeout: timedelta, *, ready: bool) -> PodSeen | None:
    """Wait until a pod has ended; with `ready`, also return once it is Ready.

    Args:
        run: The run.
        name: The pod's name.
        what: The awaited event in words, for the history.
        timeout: The longest wait.
        ready: Also return once the pod is Ready.

    Returns:
        The pod as it was then; None after the timeout.
    """

    def reached() -> PodSeen | None:
        pod = run.pods.seen(name)
        return pod if pod is not None and (pod.ended or (ready and pod.ready)) else None

    return run.wait(what, timeout, reached, every_s=0.05)


def run_agent(
    run: Run, name: str, task: MarkTask | QaTask | RemediateTask | CanaryTask, timeout: timedelta
) -> tuple[Entry, AgentResult]:
    """Send an agent and wait for its termination message; the pod stays until its entry is undone.

    Raises:
        StepFailedError: The agent leaves no message within `timeout`.
        KubernetesError: The pod cannot be created.
    """
    entry = send_agent(run, name, task, timeout)
    pod = await_pod(run, name, f"agent pod {name} to end", timeout, ready=False) or run.pods.seen(name)
    outcome = termination_message(run.pods, name)
    if outcome is None:
        state = f"{pod.phase} {pod.reason}".strip() if pod else "no pod seen"
        raise StepFailedError(
            f"agent pod {name} on {task.node} left no result within {timeout.total_seconds():g} s "
            f"({state}{_trouble_of(run, task.node)})",
            f"kubectl -n {run.profile.namespace} describe pod {name}",
        )
    return entry, outcome


def injector_deadline(fault: FaultParameters) -> timedelta:
    """Return the injector pod's deadline from the pod's start, for pulling, injecting and holding."""
    return AGENT_START_TIMEOUT + fault.longest_injection + fault.hold + _DEADLINE_MARGIN


def injector_pod(run: Run, index: int) -> str:
    """Return the name of the injector's pod on the target with this index."""
    return run.record.object_name("inject", index)


def inject_fault(
    run: Run, target: ChosenTarget, fault: FaultParameters, name: str, operands: tuple[str, ...] = ()
) -> tuple[Entry, InjectedNote]:
    """Write the intent into the ledger, then create the injector pod; the fault is in when this returns.

    Args:
        run: The run.
        target: The node and its GPU.
        fault: The fault.
        name: The pod's name.
        operands: Labels of the operands that also have to leave the node when the fault is taken out.

    Raises:
        StepFailedError: The fault does not go in.
        KubernetesError: The pod cannot be created.
    """
    parameters, gpu = fault.model_dump(mode="json"), target.gpu or 0
    task = InjectTask(run_id=run.id, node=target.node, gpu=gpu, fault=parameters, hold_s=fault.hold.total_seconds())
    undo = TakeOutFault(
        pod=name, gpu=gpu, fault=parameters, goes_with_node=run.plan.recover.is_hands_off, operands=operands
    )
    entry = send_agent(run, name, task, injector_deadline(fault), undo)
    within = AGENT_START_TIMEOUT + fault.longest_injection
    pod = await_pod(run, name, f"injector pod {name} Ready", within, ready=True)
    if pod is None or not pod.ready:
        state = _why_not_ready(pod or run.pods.seen(name))
        state += "" if pod else f", and not Ready after {within.total_seconds():g} s"
        raise StepFailedError(
            f"the fault did not go in on {target.node}: injector pod {name} is {state}{_trouble_of(run, target.node)}",
            f"kubectl -n {run.profile.namespace} logs {name}",
        )
    note = next(iter(notes_in(run.kubernetes.pod_log(name), InjectedNote)), None)
    if note is None:
        raise StepFailedError(f"injector pod {name} is Ready, but its log does not show what it wrote")
    if note.undo_state:
        # A killed agent loses its memory: the second agent finds the prior values here.
        run.ledger.update_undo(entry, undo.model_copy(update={"undo_state": note.undo_state}))
    return entry, note


def _trouble_of(run: Run, node: str) -> str:
    """Return why a pod on this node cannot report anything; empty for a node that is Ready."""
    now = run.nodes.now(node)
    if now is None:
        return f"; node {node} is gone" if run.nodes.follows(node) else ""
    ready = now.conditions.get("Ready")
    return "" if ready in (None, "True") else f"; node {node} is not Ready: its condition is {ready}"


def _why_not_ready(seen: PodSeen | None) -> str:
    """Return a pod's phase with its agent's own error, or with the pod's last message if that is not a result."""
    if seen is None:
        return "never seen"
    result = AgentResult.parse(seen.termination or "")
    ended_with = f": {result.error}" if result and result.error else f" {seen.termination or ''}"
    return f"{seen.phase} {seen.reason}".strip() + ended_with.rstrip()[:300]
