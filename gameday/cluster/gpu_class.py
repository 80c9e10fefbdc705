"""The label that tells schedulers how fast a node's GPUs are; we change only labels that we have set.

A label is ours if managedFields name our field manager as its last writer. A label that somebody else has set, or
without a known writer, is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gameday.cluster.field_managers import last_writer
from gameday.cluster.kubernetes import MANAGER, Kubernetes
from gameday.values.gpu_class import GPU_CLASS_LABEL, GpuClass


def gpu_class_of(metadata: Mapping[str, Any]) -> tuple[str, bool]:
    """Return a node's label, and whether it may be changed; empty if there is none.

    Args:
        metadata: The node's metadata as plain JSON.
    """
    value = (metadata.get("labels") or {}).get(GPU_CLASS_LABEL)
    if value is None:
        return "", True
    writer = last_writer(metadata.get("managedFields"), "f:metadata", "f:labels", f"f:{GPU_CLASS_LABEL}")
    return value, writer == MANAGER


def change_gpu_class(kubernetes: Kubernetes, node: str, change: Callable[[str], str]) -> tuple[str, bool]:
    """Change a node's label if it is ours, or missing.

    Args:
        kubernetes: The cluster.
        node: The node's name.
        change: Returns the label's new value from the current one; empty: no label.

    Returns:
        The label as it is stored afterwards, and whether it is ours or missing.

    Raises:
        KubernetesError: The node cannot be written; its status is 404 if it is gone.
    """

    def patch(now: Any) -> dict[str, Any] | None:
        value, ours = gpu_class_of(kubernetes.api.sanitize_for_serialization(now.metadata))
        wanted = change(value)
        return {"metadata": {"labels": {GPU_CLASS_LABEL: wanted or None}}} if ours and wanted != value else None

    after = kubernetes.change_node(node, patch)
    return gpu_class_of(kubernetes.api.sanitize_for_serialization(after.metadata))


def nodes_with_gpu_class(kubernetes: Kubernetes) -> list[str]:
    """Return the names of all nodes with one of the classes as label, ours or not. Raises KubernetesError."""
    return [one.name for value in GpuClass for one in kubernetes.all_candidates({GPU_CLASS_LABEL: value})]
