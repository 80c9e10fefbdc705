"""That a node that passed QA takes GPU work: what a team wants to know of it, beyond that it lost its taint."""

from __future__ import annotations

from gameday.cluster.manifests import gpu_canary
from gameday.cluster.nodes import GPU_RESOURCE
from gameday.history.events import WorkloadSeen
from gameday.run.canary import free_gpus
from gameday.run.run import Run
from gameday.run.steps import StepResult
from gameday.tasks.way_back import RETURNS_WITHIN, intend_return
from gameday.values.nodes import Target


def takes_work(
    run: Run, result: StepResult, target: Target, number: int, there: frozenset[str], *, in_service: bool
) -> None:
    """A new pod, not the canary that was kept off: that one may sit in the scheduler's back-off for 10 s.

    Where other pods took the GPUs first, they prove the same, unless they were `there` (uids) before the return. Where
    the pods that were there hold every GPU, a node that was `in_service` when QA passed is at work, as the scheduler
    confirms; of one that came back nothing is proved.
    """
    name = run.name("return", number)
    entry = intend_return(run, target, number)
    run.kubernetes.create_pod(gpu_canary(name, run_id=run.id, node=target.node, template=run.probe))

    def at_work() -> tuple[str, str] | None:
        """Which pod shows it, and how."""
        pod = run.pods.seen(name)
        if pod and pod.node:
            return (name, "runs") if pod.phase == "Running" else None
        others = [one for one in run.gpu_pods_on(target.node) if one.phase == "Running"]
        new = [one for one in others if one.uid not in there]
        if not new and not (in_service and others and _only_full(run, target, name)):
            return None
        shown = (new or others)[0]
        return f"{shown.namespace}/{shown.name}", "runs" if new else f"ran on: {len(others)} pods hold every GPU"

    found = run.wait(f"a GPU pod to run on {target.node}", RETURNS_WITHIN, at_work)
    pod = run.pods.seen(name)
    full = found is None and _only_full(run, target, name)
    shown, detail = found or (name, (pod.why_not_running if pod else "") or "was not scheduled")
    run.note(
        WorkloadSeen(
            purpose="return",
            pod=shown,
            node=target.node if found else None,
            phase="Running" if found else pod.phase if pod else "",
            wanted=f"runs on {target.node}",
            ok=True if found else None if full else False,
            detail=detail,
        )
    )
    if full:
        result.unknown(f"no new GPU pod came to {target.node}, whose GPUs are all taken: {detail}")
    elif not found:
        result.broken(f"no GPU pod runs on {target.node} after its return: {detail}")
    run.undo(entry)


def _only_full(run: Run, target: Target, name: str) -> bool:
    """Whether the scheduler would take the pod had it room, and all GPUs that the node had before are held by pods."""
    pod, now = run.pods.seen(name), run.node_now(target.node)
    refused = (pod.unschedulable if pod else None) or ""
    before = run.before[target.node].allocatable_gpus
    offered = now is not None and now.allocatable_gpus == before
    return (
        f"Insufficient {GPU_RESOURCE}" in refused
        and "taint" not in refused
        and offered
        and free_gpus(run, target.node) <= 0
    )
