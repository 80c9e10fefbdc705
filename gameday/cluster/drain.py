"""Move pods off a node by the eviction API, which respects PodDisruptionBudgets."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from gameday.cluster.gpu_pods import GpuPod, gpu_pod
from gameday.cluster.kubernetes import Kubernetes

_STATIC_POD_ANNOTATION = "kubernetes.io/config.mirror"
# kubectl drain's own pause after an eviction that a PodDisruptionBudget refused.
_EVICT_AGAIN_S = 5.0


def is_bound_to_node(pod: Any) -> bool:
    """Return True for a pod (V1Pod) of a DaemonSet and for a static one, which a drain leaves alone."""
    owners = {owner.kind for owner in pod.metadata.owner_references or []}
    return "DaemonSet" in owners or _STATIC_POD_ANNOTATION in (pod.metadata.annotations or {})


def leaving_pods(pods: Iterable[Any], *, all_leave: bool) -> list[GpuPod]:
    """Return the pods (V1Pod) that have to leave a node: those with GPUs; with `all_leave` all with a controller.

    No other node would start a pod without a controller again after an eviction, but its own kubelet does after the
    boot. So without a controller only pods with GPUs have to go.
    """
    leaving = []
    for pod in pods:
        found = gpu_pod(pod)
        goes = found.holds_gpu or (all_leave and any(owner.controller for owner in pod.metadata.owner_references or []))
        if goes and not is_bound_to_node(pod) and found.phase not in ("Succeeded", "Failed"):
            leaving.append(found)
    return leaving


class Evictions:
    """The evictions of one drain: each pod is evicted once, and again only after a budget refused it."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self._kubernetes = kubernetes
        self._ask_at: dict[str, float] = {}

    def ask(self, pods: Iterable[GpuPod]) -> None:
        """Request the eviction of the pods that have not been tried yet, or were refused at least five seconds ago.

        Raises:
            KubernetesError: The server refuses for another reason than a budget, or does not answer.
        """
        for pod in pods:
            if self._kubernetes.clock.monotonic() >= self._ask_at.get(pod.uid, 0.0):
                accepted = self._kubernetes.evict(pod.namespace, pod.name)
                self._ask_at[pod.uid] = math.inf if accepted else self._kubernetes.clock.monotonic() + _EVICT_AGAIN_S
