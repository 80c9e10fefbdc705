"""Send the agent to a node and wait for its word."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from gameday.agent.security import security_of
from gameday.agent.task import CanaryTask, InjectedNote, InjectTask, MarkTask, Outcome, QaTask, RemediateTask
from gameday.cluster.manifests import agent_pod
from gameday.cluster.pods import PodSeen
from gameday.history.events import Target
from gameday.ledger.entries import DeletePod, Entry, TakeOutFault, Undo
from gameday.ledger.undo import last_word
from gameday.plan.models import FaultParameters
from gameday.run.context import Run
from gameday.run.stop import StepFailedError

# From the pod's creation to its first word, on a node that may have to pull the image.
AGENT_STARTS_WITHIN = timedelta(seconds=60)
# The pod's own deadline lies this far behind the fault's: the agent ends the fault, the deadline ends the agent.
DEADLINE_MARGIN = timedelta(seconds=10)

SentTask = InjectTask | MarkTask | QaTask | RemediateTask | CanaryTask


def send_agent(
    run: Run,
    name: str,
    task: SentTask,
    lasts: timedelta,
    undo: Undo | None = None,
) -> Entry:
    """Write the intent, then create the agent's pod. `lasts` is the pod's own deadline; raises KubernetesError."""
    act = agent_act(task.role, task.node)
    entry = run.intend(intent_id(run, name), act, undo or DeletePod(pod=name), task.node, lasts)
    run.kubernetes.create_pod(agent_manifest(run, name, task, lasts))
    return entry


def qa_task(run: Run, node: str, number: int) -> QaTask:
    """What the agent is to prove of the target of this number."""
    return QaTask(
        run_id=run.id,
        node=node,
        marker=run.marker(number),
        floors=run.plan.qa.floors,
        expected_gpus=run.before[node].allocatable_gpus,
    )


def intent_id(run: Run, pod: str) -> str:
    """What the ledger calls the making of one of the run's pods."""
    return pod.removeprefix(f"gd-{run.id}-")


def agent_act(role: str, node: str) -> str:
    return f"create agent pod ({role}) on {node}"


def agent_manifest(run: Run, name: str, task: SentTask, deadline: timedelta) -> dict[str, Any]:
    """The pod that carries out the task; its node takes it out after `deadline`."""
    return agent_pod(
        name,
        task=task.model_dump_json(),
        role=task.role,
        run_id=run.id,
        node=task.node,
        profile=run.profile,
        deadline=deadline,
        security=security_of(task),
        gpus=task.gpus if isinstance(task, CanaryTask) else 0,
    )


def await_pod(run: Run, name: str, what: str, within: timedelta, *, ready: bool) -> PodSeen | None:
    """The pod once it is Ready (or has ended; with `ready` False only ended), None after `within`."""

    def reached() -> PodSeen | None:
        pod = run.pods.seen(name)
        return pod if pod is not None and (pod.ended or (ready and pod.ready)) else None

    return run.wait(what, within, reached, every_s=0.05)


def run_agent(
    run: Run, name: str, task: MarkTask | QaTask | RemediateTask | CanaryTask, within: timedelta
) -> tuple[Entry, Outcome]:
    """Send an agent, wait for its last word; the pod stays until its entry is undone.

    Raises StepFailedError when it gives no word within `within`, KubernetesError when it cannot be sent.
    """
    entry = send_agent(run, name, task, within)
    pod = await_pod(run, name, f"agent pod {name} to end", within, ready=False)
    outcome = last_word(run.pods, name)
    if outcome is None:
        state = f"{pod.phase} {pod.reason}".strip() if pod else "no pod seen"
        raise StepFailedError(
            f"agent pod {name} on {task.node} left no word within {within.total_seconds():g} s ({state})",
            f"kubectl -n {run.profile.namespace} describe pod {name}",
        )
    return entry, outcome


def put_in_fault(run: Run, target: Target, fault: FaultParameters, name: str) -> tuple[Entry, InjectedNote]:
    """The intent into the ledger, then the injector pod; the fault is in when this returns.

    Raises StepFailedError when it does not go in, KubernetesError when the pod cannot be created.
    """
    parameters, gpu = fault.model_dump(mode="json"), target.gpu or 0
    task = InjectTask(run_id=run.id, node=target.node, gpu=gpu, fault=parameters, hold_s=fault.hold.total_seconds())
    undo = TakeOutFault(pod=name, gpu=gpu, fault=parameters)
    entry = send_agent(run, name, task, fault.hold + DEADLINE_MARGIN, undo)
    pod = await_pod(run, name, f"injector pod {name} Ready", AGENT_STARTS_WITHIN, ready=True)
    if pod is None or not pod.ready:
        state = f"{pod.phase} {pod.reason} {pod.termination or ''}".strip() if pod else "never seen"
        raise StepFailedError(
            f"the fault did not go in on {target.node}: injector pod {name} is {state[:300]}",
            f"kubectl -n {run.profile.namespace} logs {name}",
        )
    note = _injected_note(run, name)
    if note.undo_state:
        # An agent that is killed takes its memory along: whoever undoes in its place finds the prior values here.
        run.ledger.learn(entry, undo.model_copy(update={"undo_state": note.undo_state}))
    return entry, note


def _injected_note(run: Run, pod: str) -> InjectedNote:
    """The injector's own words on what it wrote and when."""
    for line in run.kubernetes.pod_log(pod).splitlines():
        try:
            return InjectedNote.model_validate_json(line)
        except ValueError:
            continue
    raise StepFailedError(f"injector pod {pod} is Ready but its log does not say what it wrote")
