"""Which pods a plan makes leave its targets: by its fault, by its repair, or by a taint that evicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gameday.cluster.gpu_pods import GpuPod, gpu_pod
from gameday.faults.registry import takes_node_down
from gameday.plan.models import Plan, RemediationAction, TaintEffect

if TYPE_CHECKING:
    from gameday.run.run import Run

_STATIC = "kubernetes.io/config.mirror"


def moves_pods(plan: Plan) -> bool:
    """Whether pods leave the target, or end there, in the course of this plan."""
    evicts = any(taint.effect is TaintEffect.NO_EXECUTE for taint in plan.expect.taints)
    gone = plan.expect.workloads.running_pods == "evicted"
    return evicts or gone or takes_node_down(plan.fault) or plan.recover.remediation is not RemediationAction.NONE


def empties_node(plan: Plan) -> bool:
    """Whether that are all pods of the node, and not only those with GPUs."""
    return takes_node_down(plan.fault) or plan.recover.remediation is RemediationAction.REBOOT


def stays(pod: Any) -> bool:
    """Whether the pod is there because the node is: a drain leaves those of DaemonSets and static ones alone."""
    owners = {owner.kind for owner in pod.metadata.owner_references or []}
    return "DaemonSet" in owners or _STATIC in (pod.metadata.annotations or {})


def pods_to_drain(run: Run, node: str) -> list[GpuPod]:
    """What is to leave a target before its repair, as its watch last saw it: pods with GPUs, and before a reboot all.

    Without a controller no other node would start an evicted pod again, but the kubelet does so after the boot: only
    one with GPUs has to go.
    """
    reboots = run.plan.recover.remediation is RemediationAction.REBOOT
    leaving = []
    for pod in run.node_pods[node].objects():
        found = gpu_pod(pod)
        goes = found.holds_gpu or (reboots and any(owner.controller for owner in pod.metadata.owner_references or []))
        if goes and not stays(pod) and found.phase not in ("Succeeded", "Failed"):
            leaving.append(found)
    return leaving
