"""The signs of a repair on nodes, in Events and in custom resources, and who wrote each. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gameday.cluster.custom_resources import field_at
from gameday.cluster.field_managers import creator, last_writer
from gameday.history.events import KubernetesEventSeen
from gameday.plan.repair_chain import ResourceSign, Sign
from gameday.values.results import RepairKind

UNKNOWN_ACTOR = "unknown"
"""The actor of a hop if the cluster does not show who took it."""


@dataclass(frozen=True)
class Mark:
    """A sign that was seen, or a state of the node that shows a hop."""

    at: datetime
    by: str
    """The field manager, the Event's component or the resource; UNKNOWN_ACTOR if the cluster names none."""
    source: str
    """The place where it was seen, in words."""
    kind: RepairKind | None = None


@dataclass(frozen=True)
class NodeState:
    """The parts of a node to which signs refer."""

    name: str
    uid: str
    boot_id: str
    machine: str
    """The hardware's own id (nodeInfo.systemUUID), which survives a reboot; empty if the node reports none."""
    ready: bool
    gpus: int
    cordoned: bool
    taints: frozenset[tuple[str, str, str]]
    """Key, value and effect of each taint."""
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    conditions: Mapping[str, tuple[str, str]]
    """Status and reason by type."""
    managed_fields: tuple[Any, ...]

    @property
    def taint_keys(self) -> frozenset[str]:
        return frozenset(key for key, _, _ in self.taints)


def node_state(node: Any, gpu_resource: str) -> NodeState:
    """Return the state of a V1Node."""
    info = node.status.node_info
    conditions = {one.type: (one.status, one.reason or "") for one in node.status.conditions or []}
    return NodeState(
        name=node.metadata.name,
        uid=node.metadata.uid or "",
        boot_id=(info.boot_id if info else "") or "",
        machine=(info.system_uuid if info else "") or "",
        ready=conditions.get("Ready", ("", ""))[0] == "True",
        gpus=int((node.status.allocatable or {}).get(gpu_resource, 0)),
        cordoned=bool(node.spec.unschedulable),
        taints=frozenset((one.key, one.value or "", one.effect) for one in node.spec.taints or []),
        labels=node.metadata.labels or {},
        annotations=node.metadata.annotations or {},
        conditions=conditions,
        managed_fields=tuple(node.metadata.managed_fields or ()),
    )


@dataclass(frozen=True)
class NodeLook:
    """A look at a node: its state now and before the fault, and what has happened since."""

    before: NodeState
    now: NodeState
    tainted: Collection[str]
    """Keys of the taints that the node has had since the fault."""
    cordoned: bool
    """True if the node has been cordoned since the fault."""
    at: datetime
    """The time at which the watch showed it."""


def node_mark(sign: Sign, look: NodeLook) -> Mark | None:
    """Return the mark of a sign on the node itself; None if the node does not show it.

    Args:
        sign: The sign; signs in Events, custom resources and new nodes are never on the node.
        look: The node.
    """
    find = _FINDERS.get(sign.source)
    found = find(sign, look) if find else None
    if found is None:
        return None
    what, writer = found
    return Mark(look.at, sign.by or writer or UNKNOWN_ACTOR, f"watch of the node: {what}", sign.implied_kind)


_Found = tuple[str, str | None] | None
"""The sign in words and its writer's name; None if the node does not show it."""


def _label(sign: Sign, look: NodeLook) -> _Found:
    assert sign.label
    key, value = sign.label.key, look.now.labels.get(sign.label.key)
    if value is None or value == look.before.labels.get(key) or (sign.label.values and value not in sign.label.values):
        return None
    return f"label {key}={value}", last_writer(look.now.managed_fields, "f:metadata", "f:labels", f"f:{key}")


def _annotation(sign: Sign, look: NodeLook) -> _Found:
    assert sign.annotation
    key = sign.annotation.key
    if look.now.annotations.get(key) in (None, look.before.annotations.get(key)):
        return None
    return f"annotation {key}", last_writer(look.now.managed_fields, "f:metadata", "f:annotations", f"f:{key}")


def _taint(sign: Sign, look: NodeLook) -> _Found:
    assert sign.taint
    key = sign.taint.key
    is_on = key in look.now.taint_keys
    if sign.taint.gone:
        return (f"taint {key} is gone", None) if not is_on and key in look.tainted else None
    if not is_on or key in look.before.taint_keys:
        return None
    return f"taint {key}", last_writer(look.now.managed_fields, "f:spec", "f:taints")


def _cordon(sign: Sign, look: NodeLook) -> _Found:
    if not sign.cordoned:
        return ("uncordoned", None) if look.cordoned and not look.now.cordoned else None
    if look.before.cordoned or not look.now.cordoned:
        return None
    return "cordoned", last_writer(look.now.managed_fields, "f:spec", "f:unschedulable")


def _condition(sign: Sign, look: NodeLook) -> _Found:
    wanted = sign.condition
    assert wanted
    found = look.now.conditions.get(wanted.type)
    if found is None or found == look.before.conditions.get(wanted.type):
        return None
    status, reason = found
    if status != wanted.status or wanted.reason not in (None, reason):
        return None
    path = ("f:status", "f:conditions", f'k:{{"type":"{wanted.type}"}}', "f:status")
    return f"condition {wanted.type}={status} {reason}".strip(), last_writer(look.now.managed_fields, *path)


def _new_boot(sign: Sign, look: NodeLook) -> _Found:
    boot_id = look.now.boot_id
    if not boot_id or boot_id == look.before.boot_id:
        return None
    return f"boot id {look.before.boot_id or 'none'} -> {boot_id}", None


_FINDERS: Mapping[str, Callable[[Sign, NodeLook], _Found]] = {
    "label": _label,
    "annotation": _annotation,
    "taint": _taint,
    "cordoned": _cordon,
    "condition": _condition,
    "new_boot": _new_boot,
}


def event_mark(sign: Sign, seen: KubernetesEventSeen) -> Mark | None:
    """Return the mark of a Kubernetes Event; None if it does not show the sign."""
    wanted = sign.event
    if wanted is None or wanted.reason != seen.reason or wanted.component not in (None, seen.source):
        return None
    by = sign.by or seen.source or UNKNOWN_ACTOR
    return Mark(seen.at, by, f"Event {seen.reason}, by its own time stamp", sign.implied_kind)


def resource_mark(sign: Sign, resource: Mapping[str, Any], nodes: Collection[str], at: datetime) -> Mark | None:
    """Return the mark of a custom resource about one of these nodes; None if it does not show the sign.

    Args:
        sign: The sign.
        resource: The resource as plain JSON.
        nodes: The target's names.
        at: When the watch showed it.
    """
    wanted = sign.resource
    if wanted is None or field_at(resource, wanted.node) not in nodes or not _is_met(wanted, resource):
        return None
    metadata = resource.get("metadata") or {}
    name = f"{resource.get('kind') or wanted.plural} {metadata.get('name', '')}"
    fields = metadata.get("managedFields")
    manager = last_writer(fields, "f:status", "f:conditions") if wanted.condition else creator(fields)
    what = f" {wanted.condition.type}={wanted.condition.status}" if wanted.condition else ""
    return Mark(at, sign.by or manager or name, f"watch of {wanted.plural}: {name}{what}", sign.implied_kind)


def _is_met(wanted: ResourceSign, resource: Mapping[str, Any]) -> bool:
    if wanted.condition is None:
        return True
    conditions = field_at(resource, "status.conditions")
    return any(
        isinstance(one, Mapping)
        and one.get("type") == wanted.condition.type
        and one.get("status") == wanted.condition.status
        for one in (conditions if isinstance(conditions, list) else ())
    )
