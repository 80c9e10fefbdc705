"""A node as the repairer sees it, from the watch's plain JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gameday.cluster.nodes import GPU_COUNT_LABEL, GPU_RESOURCE
from gameday_health.episodes.model import SeenFault
from gameday_health.model import REASON, Taint, read_reason

STATE_LABEL = "gameday.dev/health-state"
"""The label that shows how far a node's repair is."""
HOLD_OUT = "gameday.dev/hold-out"
"""The label (`true`) of a spare node, and the key of the taint that keeps work off it until it is released."""
RELEASED_FOR = "gameday.dev/released-for"
"""The annotation of a released spare node; it names the node that it replaces."""
# A spare replaces a node that has the same values of these labels.
_POOL_LABELS = ("node.kubernetes.io/instance-type", "nvidia.com/gpu.product", GPU_COUNT_LABEL)
REPAIR_ANNOTATION = "gameday.dev/repair"
"""The annotation that shows episode, rung and attempt."""


@dataclass(frozen=True)
class NodeSeen:
    """The parts of a Node that a repair needs."""

    name: str
    uid: str
    version: str
    """Its resourceVersion."""
    boot: str
    ready: bool
    cordoned: bool
    taints: tuple[tuple[tuple[str, str], ...], ...]
    """The taints with all their fields, so that writing them back loses nothing."""
    ours: bool
    """True while the node carries the node-health controller's taint."""
    foreign: tuple[str, ...]
    """Taints of other quarantines, and a cordon, which stay on the node after its return."""
    faults: tuple[SeenFault, ...]
    """The faults of its reason; empty if that cannot be read."""
    gpus: int | None
    """Number of physical GPUs, by the node's label or else by its capacity."""
    gpu_capacity: int | None
    """Capacity of the resource nvidia.com/gpu. It also counts shares of time, but not MIG slices of other names."""
    offered_gpus: int | None
    """The part of that capacity that the node offers now."""
    state: str | None
    """Value of STATE_LABEL."""
    repair: str | None
    """Value of REPAIR_ANNOTATION."""
    is_gpu_node: bool = True
    hold_out: bool = False
    """True for a spare node, released or not."""
    held_back: bool = False
    """True while the taint keeps work off it."""
    released_for: str | None = None
    """The node that it replaces."""
    pool: tuple[str, ...] = ()
    """Instance type, GPU product and number of GPUs, by the node's labels."""

    def other_taints(self, taint: Taint) -> list[dict[str, str]]:
        """Return all taints but ours."""
        return [dict(one) for one in self.taints if not _is(dict(one), taint)]

    def is_back(self, capacity: int | None) -> bool:
        """Return True if the node is Ready and offers at least this GPU capacity."""
        return self.ready and (not capacity or (self.offered_gpus or 0) >= capacity)


def node_seen(node: dict[str, Any], taint: Taint, quarantine_keys: tuple[str, ...]) -> NodeSeen:
    """Return what a repair needs of a Node's JSON.

    Args:
        node: The Node.
        taint: The node-health controller's taint.
        quarantine_keys: Keys of the taints that this cluster's detectors use to keep work off.
    """
    meta, spec, status = (node.get(part) or {} for part in ("metadata", "spec", "status"))
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    taints = [dict(one) for one in spec.get("taints") or []]
    conditions = {one.get("type"): one.get("status") for one in status.get("conditions") or []}
    reason = read_reason(annotations.get(REASON))
    keys = {taint.key, *quarantine_keys}
    other = [one["key"] for one in taints if one["key"] in keys and not _is(one, taint)]
    capacity = _number((status.get("capacity") or {}).get(GPU_RESOURCE))
    cordoned = bool(spec.get("unschedulable"))
    return NodeSeen(
        name=meta.get("name", ""),
        uid=meta.get("uid", ""),
        version=meta.get("resourceVersion", ""),
        boot=(status.get("nodeInfo") or {}).get("bootID", ""),
        ready=conditions.get("Ready") == "True",
        cordoned=cordoned,
        taints=tuple(tuple(sorted(one.items())) for one in taints),
        ours=any(_is(one, taint) for one in taints),
        foreign=tuple([f"taint {key}" for key in other] + (["a cordon"] if cordoned else [])),
        faults=tuple(map(SeenFault.of, reason.faults())) if reason else (),
        gpus=_number(labels.get(GPU_COUNT_LABEL)) or capacity,
        gpu_capacity=capacity,
        offered_gpus=_number((status.get("allocatable") or {}).get(GPU_RESOURCE)),
        state=labels.get(STATE_LABEL),
        repair=annotations.get(REPAIR_ANNOTATION),
        hold_out=labels.get(HOLD_OUT) == "true",
        held_back=any(one["key"] == HOLD_OUT for one in taints),
        released_for=annotations.get(RELEASED_FOR),
        pool=tuple(labels.get(label, "") for label in _POOL_LABELS),
        is_gpu_node=labels.get("nvidia.com/gpu.present") == "true" or GPU_RESOURCE in (status.get("capacity") or {}),
    )


def _is(found: dict[str, str], taint: Taint) -> bool:
    """Return True for exactly this taint: the same key with another value or effect is somebody else's."""
    return (found["key"], found.get("value", ""), found["effect"]) == (taint.key, taint.value, taint.effect)


def _number(text: object) -> int | None:
    return int(str(text)) if str(text or "").isdecimal() else None
