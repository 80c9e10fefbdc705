"""What becomes of the GPU pods that ran on a target: those that are there right before the fault, judged in step 4."""

from __future__ import annotations

from datetime import timedelta

from gameday.history.events import WorkloadSeen
from gameday.run.pod_states import Fate
from gameday.run.run import Run
from gameday.values.nodes import Target

# From the kubelet's last signal to the pod's end in the API.
_ENDS_WITHIN = timedelta(seconds=10)


def remember_running_pods(run: Run, target: Target) -> None:
    """Note whose fate is of interest: a pod that is on its way out by then is none of the fault's doing."""
    there = run.gpu_pods_on(target.node)
    run.ran_before[target.node] = [pod for pod in there if pod.run != run.id and not pod.terminating]


def running_pods(run: Run, target: Target) -> None:
    """Note what became of each; where they are to be evicted, once they had the time that they may take to end."""
    wanted, ran = run.plan.expect.workloads.running_pods, run.ran_before.get(target.node, [])
    if wanted == "evicted" and ran:
        within = timedelta(seconds=max(pod.grace_s for pod in ran)) + _ENDS_WITHIN
        left = [pod.uid for pod in ran]
        run.wait(
            f"GPU pods to leave {target.node}",
            within,
            lambda: True if all(run.pod_states.fate(uid).off for uid in left) else None,
        )
    for pod in ran:
        fate = run.pod_states.fate(pod.uid)
        run.note(
            WorkloadSeen(
                purpose="running",
                pod=f"{pod.namespace}/{pod.name}",
                node=None if fate.off else target.node,
                phase="gone" if fate.gone else fate.pod.phase,
                wanted=wanted,
                ok=True if wanted == "any" else _as_wanted(fate, wanted),
                detail=fate.words,
            )
        )


def _as_wanted(fate: Fate, wanted: str) -> bool | None:
    """None where a pod came to its own end before it could be evicted, which proves nothing."""
    if wanted == "kept":
        return fate.kept or fate.ended_by_itself
    return None if fate.ended_by_itself else fate.off
