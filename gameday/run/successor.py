"""Find the node that replaces a target that is gone: in the same pool, and newer than the fault."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from kubernetes import client

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.list_watch import DELETED

POOL_LABELS = (
    "karpenter.sh/nodepool",
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
)
"""Labels by which Karpenter, EKS, GKE and AKS name a node's pool."""
_KIND_LABELS = ("node.kubernetes.io/instance-type", "nvidia.com/gpu.product")
# creationTimestamp has whole seconds, and the fault has the time of the node's clock.
_CLOCK_TOLERANCE = timedelta(seconds=2)


def pool_of(labels: Mapping[str, str], otherwise: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that a node shares with the others of its pool.

    Args:
        labels: The node's labels.
        otherwise: The labels to use if the node names neither its pool nor its instance type and GPU.
    """
    named = {key: labels[key] for key in POOL_LABELS if key in labels}
    kind = {key: labels[key] for key in _KIND_LABELS if key in labels}
    return named or (kind if len(kind) == len(_KIND_LABELS) else dict(otherwise))


class PoolWatch:
    """A watch of one pool, from the moment when a target of it was gone."""

    def __init__(self, kubernetes: Kubernetes, pool: Mapping[str, str], fault_at: datetime) -> None:
        """Start the watch.

        Args:
            kubernetes: The cluster.
            pool: Labels of the pool's nodes.
            fault_at: Only nodes that were created after this can be successors.
        """
        selector = ",".join(f"{key}={value}" for key, value in sorted(pool.items()))
        self._after = fault_at - _CLOCK_TOLERANCE
        self._candidates: dict[str, Any] = {}
        self._follower = kubernetes.follow(
            kubernetes.core.list_node, self._changed, self._if_newer, label_selector=selector
        )
        self._follower.__enter__()

    def candidates(self) -> list[Any]:
        """Return the nodes (V1Node) that are newer than the fault, the oldest first."""
        return sorted(list(self._candidates.values()), key=lambda node: node.metadata.creation_timestamp)

    def stop(self) -> None:
        """End the watch."""
        self._follower.stop()

    def _if_newer(self, node: dict[str, Any]) -> Any:
        """Return the model of a node that is newer than the fault; None for the pool's other nodes."""
        created = datetime.fromisoformat(node["metadata"]["creationTimestamp"])
        return client.V1Node.from_dict(node) if created >= self._after else None

    def _changed(self, kind: str, node: Any) -> None:
        if node is None:
            return
        if kind == DELETED:
            self._candidates.pop(node.metadata.name, None)
        else:
            self._candidates[node.metadata.name] = node
