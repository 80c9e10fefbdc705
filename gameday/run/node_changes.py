"""The changes of a target that a watch shows, as events of the history; a mere heartbeat is none. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gameday.cluster.nodes import snapshot
from gameday.history.events import AllocatableSeen, ConditionSeen, CordonSeen, Event, KubernetesEventSeen, LabelSeen
from gameday.values.nodes import NodeSnapshot

# Characters; the API server's limit for an Event's message. A condition's has no limit of its own.
_LONGEST_MESSAGE = 1024


@dataclass(frozen=True)
class Condition:
    """The state of one condition of a node."""

    status: str
    reason: str | None
    """The condition's reason; None if only the status is known, as from a snapshot: a reason that comes later is then
    no change."""
    message: str = ""


@dataclass(frozen=True)
class NodeView:
    """The statements of detectors and kubelets about a node, apart from its taints."""

    conditions: Mapping[str, Condition]
    labels: Mapping[str, str]
    gpus: int | None
    """Allocatable nvidia.com/gpu; None where the node reports none."""
    cordoned: bool


def view_of_node(node: Any) -> NodeView:
    """Return the view of a V1Node."""
    now = snapshot(node)
    conditions = {
        condition.type: Condition(
            condition.status, condition.reason or "", (condition.message or "")[:_LONGEST_MESSAGE]
        )
        for condition in node.status.conditions or []
    }
    return NodeView(conditions, now.labels, now.allocatable_gpus, now.unschedulable)


def view_of_snapshot(seen: NodeSnapshot) -> NodeView:
    """Return the view of a snapshot, which keeps no reason of a condition."""
    conditions = {name: Condition(status, None) for name, status in seen.conditions.items()}
    return NodeView(conditions, seen.labels, seen.allocatable_gpus, seen.unschedulable)


def changes(node: str, before: NodeView, now: NodeView, at: datetime) -> Iterator[Event]:
    """Yield an event for each condition, label, GPU count or cordon that changed."""
    for name in sorted(before.conditions.keys() | now.conditions.keys()):
        was, found = before.conditions.get(name), now.conditions.get(name)
        if found is None:
            yield ConditionSeen(node=node, condition=name, status=None, at=at)
        elif was is None or was.status != found.status or was.reason not in (None, found.reason):
            reason = found.reason or ""
            yield ConditionSeen(
                node=node, condition=name, status=found.status, reason=reason, message=found.message, at=at
            )
    for name in sorted(before.labels.keys() | now.labels.keys()):
        if before.labels.get(name) != now.labels.get(name):
            yield LabelSeen(node=node, label=name, value=now.labels.get(name), at=at)
    if before.gpus != now.gpus:
        yield AllocatableSeen(node=node, gpus=now.gpus, before=before.gpus, at=at)
    if before.cordoned != now.cordoned:
        yield CordonSeen(node=node, cordoned=now.cordoned, at=at)


class NodeEvents:
    """The Kubernetes Events about one node: each is new once, and again whenever its count grows."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._counts: dict[str, int] = {}

    def remember(self, event: Any) -> None:
        """Remember an Event (CoreV1Event) that was there when the watch began; only a higher count is new."""
        self._counts[event.metadata.uid] = _count(event)

    def new_event(self, event: Any, now: datetime) -> KubernetesEventSeen | None:
        """Return an Event (CoreV1Event) for the history, dated `now` if by nothing else; None where it is not new."""
        count = _count(event)
        if count <= self._counts.get(event.metadata.uid, 0):
            return None
        self._counts[event.metadata.uid] = count
        return KubernetesEventSeen(
            node=self._node,
            reason=event.reason or "",
            type=event.type or "",
            source=(event.source.component if event.source else None) or event.reporting_component or "",
            message=(event.message or "")[:_LONGEST_MESSAGE],
            count=count,
            at=_last_seen_at(event) or now,
        )


def _count(event: Any) -> int:
    return (event.series.count if event.series else None) or event.count or 1


def _last_seen_at(event: Any) -> datetime | None:
    """Return when it happened last; the field that holds this depends on the API its writer used."""
    last = event.series.last_observed_time if event.series else None
    found: datetime | None = last or event.last_timestamp or event.event_time or event.first_timestamp
    return found or event.metadata.creation_timestamp
