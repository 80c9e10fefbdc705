"""Pods that hold GPUs of a node, and how many."""

from __future__ import annotations

from typing import Any

from kubernetes import client
from pydantic import BaseModel, ConfigDict

from gameday.cluster.nodes import GPU_PART_RESOURCES, GPU_RESOURCE

# The API server's default terminationGracePeriodSeconds.
_DEFAULT_GRACE_S = 30


class GpuPod(BaseModel):
    """A pod and the GPUs that it holds on its node."""

    model_config = ConfigDict(frozen=True)

    namespace: str
    name: str
    uid: str
    phase: str
    gpus: int
    """Whole GPUs, as in the node's allocatable nvidia.com/gpu."""
    partial: bool
    """True if it has MIG slices or shares of GPUs, which have other resource names."""
    claims: bool
    """True if it has ResourceClaims: with dynamic resource allocation, GPUs are not a resource of its containers."""
    run: str | None
    """The run that created it; None if no game-day did."""
    grace_s: int
    """terminationGracePeriodSeconds."""
    terminating: bool
    disruption: str
    """The reason of its condition DisruptionTarget: evicted, preempted, or deleted for a taint; empty if it has
    none."""

    @property
    def holds_gpu(self) -> bool:
        """True if the pod may hold a GPU. A ResourceClaim counts as one, because only the claim names its device."""
        return bool(self.gpus or self.partial or self.claims)


def gpu_pod(pod: client.V1Pod) -> GpuPod:
    """Return a pod's GPUs, and the state that decides how it can be moved."""
    conditions = (pod.status.conditions if pod.status else None) or []
    disrupted = [found.reason for found in conditions if found.type == "DisruptionTarget" and found.status == "True"]
    grace_s = pod.spec.termination_grace_period_seconds
    return GpuPod(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        phase=(pod.status.phase if pod.status else None) or "Unknown",
        gpus=_whole_gpus(pod.spec),
        partial=any(map(_asks_for_parts, [*pod.spec.containers, *(pod.spec.init_containers or [])])),
        claims=bool(pod.spec.resource_claims),
        run=(pod.metadata.labels or {}).get("gameday.dev/run"),
        grace_s=_DEFAULT_GRACE_S if grace_s is None else grace_s,
        terminating=pod.metadata.deletion_timestamp is not None,
        disruption=(disrupted[0] or "DisruptionTarget") if disrupted else "",
    )


def is_ended_by_somebody(pod: dict[str, Any]) -> bool:
    """Return True if a pod, given as JSON, is being deleted, or was evicted or preempted."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    disrupted = any(one["type"] == "DisruptionTarget" and one["status"] == "True" for one in conditions)
    return disrupted or "deletionTimestamp" in pod["metadata"]


def _whole_gpus(spec: client.V1PodSpec) -> int:
    """Count like the scheduler: init containers run one after the other, before the rest; sidecars beside it."""
    first = spec.init_containers or []
    sidecars = [container for container in first if container.restart_policy == "Always"]
    return max(sum(map(_gpu_limit, [*spec.containers, *sidecars])), *map(_gpu_limit, first), 0)


def _gpu_limit(container: client.V1Container) -> int:
    return int(_limits(container).get(GPU_RESOURCE, 0))


def _asks_for_parts(container: client.V1Container) -> bool:
    return any(name.startswith(GPU_PART_RESOURCES) for name in _limits(container))


def _limits(container: client.V1Container) -> dict[str, str]:
    return (container.resources.limits if container.resources else None) or {}
