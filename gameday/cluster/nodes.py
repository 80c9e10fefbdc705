"""Nodes as a game-day reads them: the parts that it may change or be blamed for, and who wrote them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from kubernetes import client

from gameday.cluster.field_managers import has_field
from gameday.values.nodes import VIRTUAL_PROVIDER, NodeReadiness, NodeSnapshot, Taint

GPU_RESOURCE = "nvidia.com/gpu"
"""The device plugin's name for whole GPUs, in a node's allocatable and in a container's limits."""
GPU_COUNT_LABEL = "nvidia.com/gpu.count"
"""GPU feature discovery's count of physical GPUs; `allocatable` also counts MIG slices and time-sliced shares."""
GPU_PART_RESOURCES = (f"{GPU_RESOURCE}.", "nvidia.com/mig-")
"""Prefixes of the device plugin's names for time-sliced shares (nvidia.com/gpu.shared) and, under the mixed
strategy, for MIG slices."""
REASON_ANNOTATION = "gameday.dev/faulty-reason"
"""The annotation in which our node-health controller says why and when it quarantined a node."""
_KWOK = "kwok.x-k8s.io/node"  # kwok keeps the nodes that carry this annotation


def snapshot(node: client.V1Node) -> NodeSnapshot:
    """Return the parts of a Node that a game-day may change, or may be blamed for changing."""
    offered: dict[str, str] = node.status.allocatable or {}
    gpus = offered.get(GPU_RESOURCE)
    return NodeSnapshot(
        node=node.metadata.name,
        resource_version=node.metadata.resource_version or "",
        unschedulable=bool(node.spec.unschedulable),
        taints=taints_of(node),
        labels=node.metadata.labels or {},
        annotations=node.metadata.annotations or {},
        conditions={condition.type: condition.status for condition in node.status.conditions or []},
        boot_id=node.status.node_info.boot_id if node.status.node_info else "",
        allocatable_gpus=int(gpus) if gpus is not None else None,
        virtual=_is_virtual(node),
        gpu_parts=tuple(
            sorted(name for name, n in offered.items() if name.startswith(GPU_PART_RESOURCES) and n != "0")
        ),
    )


def _is_virtual(node: client.V1Node) -> bool:
    """Return True if no machine is behind a node: one of a rehearsal, or one that kwok keeps."""
    annotations = node.metadata.annotations or {}
    return (node.spec.provider_id or "").startswith(VIRTUAL_PROVIDER) or _KWOK in annotations


def readiness(node: dict[str, Any]) -> NodeReadiness:
    """Return the readiness of a node, given as JSON, and since when it has it."""
    conditions = (node.get("status") or {}).get("conditions") or []
    ready: dict[str, str] = next((one for one in conditions if one["type"] == "Ready"), {})
    return NodeReadiness(ready=ready.get("status") == "True", since=ready.get("lastTransitionTime"))


def taints_of(node: client.V1Node) -> tuple[Taint, ...]:
    """Return a node's taints in their order."""
    return tuple(map(to_taint, node.spec.taints or []))


def to_taint(taint: client.V1Taint) -> Taint:
    """Return the client's taint as ours; a missing value counts as empty, as for the API server."""
    return Taint(key=taint.key, value=taint.value or "", effect=taint.effect)


def taint_manager(node: client.V1Node) -> str | None:
    """Return the field manager that last wrote spec.taints; None if managedFields name none.

    The API server owns spec.taints as one field (an atomic list), so this is the last writer of the whole list.
    """
    write = _last_write(node, "f:spec", "f:taints")
    return write.manager if write else None


def taints_written_at(node: client.V1Node) -> datetime | None:
    """Return the second in which spec.taints was last written; None if managedFields name none."""
    write = _last_write(node, "f:spec", "f:taints")
    return write.time if write else None


def cordon_written_at(node: client.V1Node) -> datetime | None:
    """Return the second in which the cordon's writer last wrote the node; None if managedFields name none."""
    write = _last_write(node, "f:spec", "f:unschedulable")
    return write.time if write else None


def label_written_at(node: client.V1Node, label: str) -> datetime | None:
    """Return the second in which the label's writer last wrote the node; None if managedFields name none."""
    write = _last_write(node, "f:metadata", "f:labels", f"f:{label}")
    return write.time if write else None


def cordon_manager(node: client.V1Node) -> str | None:
    """Return the field manager that last wrote the cordon; None if managedFields name none."""
    write = _last_write(node, "f:spec", "f:unschedulable")
    return write.manager if write else None


def _last_write(node: client.V1Node, *path: str) -> client.V1ManagedFieldsEntry | None:
    owners = [entry for entry in node.metadata.managed_fields or [] if has_field(entry.fields_v1 or {}, path)]
    owners.sort(key=lambda entry: (entry.time is not None, entry.time))
    return owners[-1] if owners else None


def decided_at(node: client.V1Node) -> datetime | None:
    """Return when our node-health controller decided to quarantine the node.

    None for other detectors, which leave no such annotation, and for an unreadable one.
    """
    try:
        reason = json.loads((node.metadata.annotations or {})[REASON_ANNOTATION])
        decided = datetime.fromisoformat(reason["decided"])
    except (KeyError, ValueError, TypeError):
        return None
    return decided if decided.tzinfo else None
