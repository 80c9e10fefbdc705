"""The GPU pods that ran on a target right before the fault, and how step 4 judges what happened to them."""

from __future__ import annotations

from datetime import timedelta

from gameday.cluster.gpu_pods import GpuPod
from gameday.history.events import WorkloadSeen
from gameday.observe.injected_fault import InjectedFault
from gameday.run.pod_states import PodFate
from gameday.run.run import Run
from gameday.run.targets import ChosenTarget

# From the kubelet's last signal to the pod's end in the API.
_END_MARGIN = timedelta(seconds=10)


def pods_before_fault(run: Run, target: ChosenTarget) -> tuple[GpuPod, ...]:
    """Return the GPU pods on a target now, without those that are already ending."""
    now = run.nodes.gpu_pods_on(target.node)
    return tuple(pod for pod in now if pod.run != run.id and not pod.terminating)


def note_running_pods(run: Run, fault: InjectedFault) -> None:
    """Note the fates of the pods that ran before the fault. Evicted pods get their grace periods to end."""
    wanted, ran, node = run.plan.expect.workloads.running_pods, fault.pods_before, fault.node
    pod_states = run.nodes.pod_states
    if wanted == "evicted" and ran:
        timeout = timedelta(seconds=max(pod.grace_s for pod in ran)) + _END_MARGIN
        left = [pod.uid for pod in ran]
        run.wait(
            f"GPU pods to leave {node}",
            timeout,
            lambda: True if all(pod_states.fate(uid).has_left for uid in left) else None,
        )
    for pod in ran:
        fate = pod_states.fate(pod.uid)
        run.note(
            WorkloadSeen(
                purpose="running",
                pod=f"{pod.namespace}/{pod.name}",
                node=None if fate.has_left else node,
                phase="gone" if fate.deleted else fate.pod.phase,
                wanted=wanted,
                ok=True if wanted == "any" else _as_wanted(fate, wanted),
                detail=fate.description,
            )
        )


def _as_wanted(fate: PodFate, wanted: str) -> bool | None:
    """Return True if the fate is the wanted one; None for a pod that ended by itself before it could be evicted."""
    if wanted == "kept":
        return fate.is_kept or fate.ended_by_itself
    return None if fate.ended_by_itself else fate.has_left
