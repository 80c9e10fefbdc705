"""The pods that leave the targets because of a plan: by its fault, its repair, or a taint that evicts."""

from __future__ import annotations

from gameday.cluster.drain import leaving_pods
from gameday.cluster.gpu_pods import GpuPod
from gameday.expect.taints import TaintEffect
from gameday.faults.optional import takes_node_down
from gameday.plan.models import Plan
from gameday.remediations.registry import remediation_for
from gameday.run.run import ReadOnlyRun


def moves_pods(plan: Plan) -> bool:
    """Return True if pods leave the target, or end there, during this plan."""
    evicts = any(taint.effect is TaintEffect.NO_EXECUTE for taint in plan.expect.taints)
    gone = plan.expect.workloads.running_pods == "evicted"
    return evicts or gone or takes_node_down(plan.fault) or remediation_for(plan.recover.remediation).drains_node


def empties_node(plan: Plan) -> bool:
    """Return True if all pods leave the node, not only those with GPUs."""
    return takes_node_down(plan.fault) or remediation_for(plan.recover.remediation).takes_node_down


def pods_to_drain(run: ReadOnlyRun, node: str) -> list[GpuPod]:
    """Return the pods that have to leave a target before its repair: those with GPUs, or all before a reboot."""
    all_leave = remediation_for(run.plan.recover.remediation).takes_node_down
    return leaving_pods(run.nodes.pods_on(node), all_leave=all_leave)
