"""Send the agent to a node and wait for its word."""

from __future__ import annotations

from datetime import timedelta

from gameday.agent.task import InjectTask, MarkTask, Outcome, QaTask, RemediateTask
from gameday.cluster.manifests import agent_pod
from gameday.cluster.pods import PodSeen
from gameday.ledger.entries import DeletePod, Entry, Undo
from gameday.ledger.undo import last_word
from gameday.run.context import Run
from gameday.run.stop import StepFailedError

# From the pod's creation to its first word, on a node that may have to pull the image.
AGENT_STARTS_WITHIN = timedelta(seconds=60)


def send_agent(
    run: Run,
    name: str,
    task: InjectTask | MarkTask | QaTask | RemediateTask,
    lasts: timedelta,
    undo: Undo | None = None,
) -> Entry:
    """Write the intent, then create the agent's pod. `lasts` is the pod's own deadline; raises KubernetesError."""
    entry = run.intend(
        id=name.removeprefix(f"gd-{run.id}-"),
        act=f"create agent pod ({task.role}) on {task.node}",
        undo=undo or DeletePod(pod=name),
        node=task.node,
        lasts=lasts,
    )
    run.kubernetes.create_pod(
        agent_pod(
            name,
            task=task.model_dump_json(),
            role=task.role,
            run_id=run.id,
            node=task.node,
            profile=run.profile,
            deadline=lasts,
        )
    )
    return entry


def await_pod(run: Run, name: str, what: str, within: timedelta, *, ready: bool) -> PodSeen | None:
    """The pod once it is Ready (or has ended; with `ready` False only ended), None after `within`."""

    def reached() -> PodSeen | None:
        pod = run.pods.seen(name)
        return pod if pod is not None and (pod.ended or (ready and pod.ready)) else None

    return run.wait(what, within, reached, every_s=0.05)


def run_agent(run: Run, name: str, task: MarkTask | QaTask | RemediateTask, within: timedelta) -> tuple[Entry, Outcome]:
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
