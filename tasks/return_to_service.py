"""Step 6 checks that a returned node runs a GPU pod; the intents of that pod and of QA's pod are written here, too."""

from __future__ import annotations

from datetime import timedelta

from gameday.cluster.manifests import gpu_canary
from gameday.cluster.nodes import GPU_RESOURCE
from gameday.history.events import WorkloadSeen
from gameday.ledger.entries import DeletePod, Entry
from gameday.run.agents import AGENT_START_TIMEOUT, agent_act, intent_id
from gameday.run.canary import CANARY_TIMEOUT
from gameday.run.run import Run
from gameday.run.steps import StepResult
from gameday.run.targets import ChosenTarget
from gameday.values.results import Cleanliness

# Time for a GPU pod to run on a node that takes work. Our own choice.
_RETURN_TIMEOUT = timedelta(seconds=60)


def intend_qa_and_return(run: Run, target: ChosenTarget, *, repair: timedelta) -> None:
    """Write the intents of QA's pod and of the return pod, together with the next intent.

    Undoing a pod that was never created finds nothing to delete.

    Args:
        run: The run.
        target: The target.
        repair: How long the repair before them may take.
    """
    duration = repair + run.plan.qa.longest + AGENT_START_TIMEOUT + CANARY_TIMEOUT + _RETURN_TIMEOUT
    name = run.record.object_name("qa", target.index)
    act, undo = agent_act("qa", target.node), DeletePod(pod=name)
    run.intend(intent_id(run, name), act, undo, target.node, duration, defer_write=True)
    intend_return(run, target, duration, defer_write=True)


def intend_return(
    run: Run, target: ChosenTarget, duration: timedelta = _RETURN_TIMEOUT, *, defer_write: bool = False
) -> Entry:
    """Write the intent of the return pod and return its entry, or the existing one."""
    name = run.record.object_name("return", target.index)
    act, undo = f"create canary pod {name}", DeletePod(pod=name)
    return run.intend(f"return-{target.index}", act, undo, target.node, duration, defer_write=defer_write)


def void_return(run: Run, target: ChosenTarget) -> None:
    """Settle the intent of a return pod that is not made, because its node stays out of service."""
    for entry in run.ledger.open_entries():
        if entry.id == f"return-{target.index}":
            run.ledger.settle(entry, Cleanliness.CLEAN, ("never created: the node is kept out of service",))


def check_takes_work(
    run: Run, result: StepResult, target: ChosenTarget, existing_uids: frozenset[str], *, in_service: bool
) -> None:
    """Check that a returned node runs a GPU pod.

    The pod is a new one, because the canary that was kept off may be in the scheduler's back-off for 10 s. If other
    pods took the GPUs first, they prove the same. If earlier pods hold every GPU, as the scheduler confirms, a node
    that was never out of service is at work; for a node that came back this proves nothing.

    Args:
        run: The run.
        result: Receives the finding.
        target: The node.
        existing_uids: UIDs of the GPU pods that ran on the node before its return.
        in_service: The node was in service when QA passed.
    """
    name = run.record.object_name("return", target.index)
    entry = intend_return(run, target)
    run.kubernetes.create_pod(gpu_canary(name, run_id=run.id, node=target.node, template=run.gpu_pod_template))

    def at_work() -> tuple[str, str] | None:
        """Return the pod that proves it, and how."""
        pod = run.pods.seen(name)
        if pod and pod.node:
            return (name, "runs") if pod.phase == "Running" else None
        others = [other for other in run.nodes.gpu_pods_on(target.node) if other.phase == "Running"]
        new = [other for other in others if other.uid not in existing_uids]
        if not new and not (in_service and others and _is_only_full(run, target, name)):
            return None
        proof = (new or others)[0]
        return f"{proof.namespace}/{proof.name}", "runs" if new else f"ran on: {len(others)} pods hold every GPU"

    found = run.wait(f"a GPU pod to run on {target.node}", _RETURN_TIMEOUT, at_work)
    pod = run.pods.seen(name)
    full = found is None and _is_only_full(run, target, name)
    name_shown, detail = found or (name, (pod.why_not_running if pod else "") or "was not scheduled")
    run.note(
        WorkloadSeen(
            purpose="return",
            pod=name_shown,
            node=target.node if found else None,
            phase="Running" if found else pod.phase if pod else "",
            wanted=f"runs on {target.node}",
            ok=True if found else None if full else False,
            detail=detail,
        )
    )
    if full:
        result.mark_unknown(f"no new GPU pod came to {target.node}, whose GPUs are all taken: {detail}")
    elif not found:
        result.mark_broken(f"no GPU pod runs on {target.node} after its return: {detail}")
    run.undo(entry)


def _is_only_full(run: Run, target: ChosenTarget, name: str) -> bool:
    """Return True if the scheduler lacks nothing but room, and pods hold all GPUs that the node had before."""
    pod, now = run.pods.seen(name), run.nodes.now(target.node)
    refused = (pod.unschedulable if pod else None) or ""
    offered = now is not None and now.allocatable_gpus == target.before.allocatable_gpus
    lacks_room = f"Insufficient {GPU_RESOURCE}" in refused and "taint" not in refused
    return lacks_room and offered and run.nodes.free_gpus(target.node) <= 0
