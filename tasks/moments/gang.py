"""Step 4 sends a gang of GPU pods, and notes whether the scheduler gives them nodes with fast GPUs.

The plan's bound and the verdict are in gameday/expect/placement/; the classes are those that `gameday fleet` writes. If
the fast nodes have no room for the whole gang, no pod is sent: the preference could not be met.
"""

from __future__ import annotations

from collections.abc import Sequence

from gameday.checks.verdict import Status
from gameday.cluster.manifests import gang_pod
from gameday.cluster.nodes import snapshot
from gameday.errors import KubernetesError
from gameday.expect.placement import ExpectedPlacement
from gameday.expect.placement.judge import judge_gang
from gameday.history.events import GangPlaced, GangPod
from gameday.ledger.entries import DeletePod, Entry
from gameday.run.run import Run
from gameday.run.steps import StepResult
from gameday.run.targets import pool_labels, why_unfit
from gameday.values.gpu_class import GPU_CLASS_LABEL, GpuClass

ORDER = 6
_MOST_LOOKED_AT = 20
"""Fast nodes for which free GPUs are counted; each costs two requests."""


def contained(run: Run, result: StepResult) -> None:
    """Send the plan's gang if the fast nodes have room for it, and note where its pods land."""
    wanted = run.plan.expect.placement
    if wanted is None:
        return
    why_not = _why_no_room(run, wanted.pods)
    placed = _not_sent(wanted, why_not) if why_not else _send(run, wanted)
    run.note(placed)
    status, why = judge_gang(placed)
    if status is Status.BROKEN:
        result.mark_broken(f"the gang is not on nodes of the class {GpuClass.FAST}: {why}")
    elif status is Status.UNKNOWN:
        result.mark_unknown(f"whether the gang lands on nodes of the class {GpuClass.FAST} is not known: {why}")


def _why_no_room(run: Run, pods: int) -> str:
    """Return why the fast nodes cannot take the whole gang; empty if they can. Raises KubernetesError."""
    pool = pool_labels(run)
    fast = run.kubernetes.candidates(pool | {GPU_CLASS_LABEL: str(GpuClass.FAST)})[:_MOST_LOOKED_AT]
    if not fast:
        labels = ",".join(f"{key}={value}" for key, value in pool.items())
        return (
            f"no node with {labels} has the label {GPU_CLASS_LABEL}={GpuClass.FAST}, which `gameday fleet` writes "
            "where the profile has gpu_class_labels: true"
        )
    free = 0
    for one in fast:
        free += _free_gpus(run, one.name, pool)
        if free >= pods:
            return ""
    return f"{free} GPUs are free on {len(fast)} node(s) of the class {GpuClass.FAST}, and the gang asks for {pods}"


def _free_gpus(run: Run, name: str, pool: dict[str, str]) -> int:
    """Return how many GPUs of a node the gang may have. Raises KubernetesError."""
    node = run.kubernetes.node_or_none(name)
    if node is None:
        return 0
    seen = snapshot(node)
    if why_unfit(seen, pool, run.quarantine_keys, run.profile.ordinary_taints(run.plan.fault.runs_on)):
        return 0
    return max(0, (seen.allocatable_gpus or 0) - sum(pod.gpus for pod in run.kubernetes.gpu_pods(name)))


def _not_sent(wanted: ExpectedPlacement, why: str) -> GangPlaced:
    return GangPlaced(pods=(), prefers_fast=wanted.prefers_fast, why_not_sent=why)


def _send(run: Run, wanted: ExpectedPlacement) -> GangPlaced:
    """Create the gang, wait for the scheduler, and delete the gang; return its places. Raises KubernetesError."""
    names = [run.record.object_name("gang", index) for index in range(wanted.pods)]
    entries, pool = _intend_gang(run, names), pool_labels(run)
    try:
        for name in names:
            pod = gang_pod(
                name,
                run_id=run.id,
                selector=pool,
                template=run.gpu_pod_template,
                prefers_fast=wanted.prefers_fast,
            )
            run.kubernetes.create_pod(pod)
    except KubernetesError as error:  # rejected by a quota, for example
        placed = _not_sent(wanted, f"it could not be created: {error}")
    else:
        run.wait(f"nodes for a gang of {wanted.pods} pods", wanted.placed_within, lambda: _all_decided(run, names))
        placed = GangPlaced(pods=tuple(_place(run, name) for name in names), prefers_fast=wanted.prefers_fast)
    for entry in entries:
        run.undo(entry)
    return placed


def _intend_gang(run: Run, names: Sequence[str]) -> list[Entry]:
    """Write the intents of all pods, in one write of the ledger."""
    duration, last = run.plan.guardrails.max_duration, len(names) - 1
    return [
        run.intend(
            f"gang-{index}", f"create pod {name}", DeletePod(pod=name), None, duration, defer_write=index != last
        )
        for index, name in enumerate(names)
    ]


def _all_decided(run: Run, names: Sequence[str]) -> bool | None:
    seen = [run.pods.seen(name) for name in names]
    return all(pod and (pod.node or pod.unschedulable) for pod in seen) or None


def _place(run: Run, name: str) -> GangPod:
    """Return a pod's place. Raises KubernetesError."""
    pod = run.pods.seen(name)
    node = run.kubernetes.node_or_none(pod.node) if pod and pod.node else None
    return GangPod(
        pod=name,
        node=pod.node if pod else None,
        gpu_class=(node.metadata.labels or {}).get(GPU_CLASS_LABEL, "") if node else "",
        unschedulable=(pod.unschedulable if pod else None) or "",
    )
