"""The pods that a plan makes leave its targets: by its fault, by its repair, or by a taint that evicts."""

from __future__ import annotations

from typing import Any

from gameday.cluster.gpu_pods import GpuPod, gpu_pod
from gameday.faults.registry import takes_node_down
from gameday.plan.expectations import TaintEffect
from gameday.plan.models import Plan
from gameday.remediations.registry import remediation_for
from gameday.run.run import ReadOnlyRun

_STATIC_POD_ANNOTATION = "kubernetes.io/config.mirror"


def moves_pods(plan: Plan) -> bool:
    """Return True where pods leave the target, or end there, in the course of this plan."""
    evicts = any(taint.effect is TaintEffect.NO_EXECUTE for taint in plan.expect.taints)
    gone = plan.expect.workloads.running_pods == "evicted"
    return evicts or gone or takes_node_down(plan.fault) or remediation_for(plan.recover.remediation).drains_node


def empties_node(plan: Plan) -> bool:
    """Return True where all pods leave the node, and not only those with GPUs."""
    return takes_node_down(plan.fault) or remediation_for(plan.recover.remediation).takes_node_down


def is_bound_to_node(pod: Any) -> bool:
    """Return True for a pod (V1Pod) of a DaemonSet and for a static one, which a drain leaves alone."""
    owners = {owner.kind for owner in pod.metadata.owner_references or []}
    return "DaemonSet" in owners or _STATIC_POD_ANNOTATION in (pod.metadata.annotations or {})


def pods_to_drain(run: ReadOnlyRun, node: str) -> list[GpuPod]:
    """Return the pods that have to leave a target before its repair: those with GPUs, and before a reboot all.

    Without a controller no other node would start an evicted pod again, but the kubelet does so after the boot: only
    one with GPUs has to go.
    """
    all_leave = remediation_for(run.plan.recover.remediation).takes_node_down
    leaving = []
    for pod in run.nodes.pods_on(node):
        found = gpu_pod(pod)
        goes = found.holds_gpu or (all_leave and any(owner.controller for owner in pod.metadata.owner_references or []))
        if goes and not is_bound_to_node(pod) and found.phase not in ("Succeeded", "Failed"):
            leaving.append(found)
    return leaving
