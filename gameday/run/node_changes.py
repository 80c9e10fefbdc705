"""What a watch shows of a target, as events of the history: only what changed, so that a heartbeat is no news. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gameday.cluster.nodes import snapshot
from gameday.history.events import AllocatableSeen, ConditionSeen, CordonSeen, Event, KubernetesEventSeen, LabelSeen
from gameday.values.nodes import NodeSnapshot

# As long as the API server lets an Event's message be; a condition's has no limit of its own.
_LONGEST_MESSAGE = 1024


@dataclass(frozen=True)
class Condition:
    status: str
    reason: str | None
    """None where only the status was kept, as in a snapshot: then a reason is no change."""
    message: str = ""


@dataclass(frozen=True)
class NodeView:
    """What detectors and kubelets say about a node, apart from its taints."""

    conditions: Mapping[str, Condition]
    labels: Mapping[str, str]
    gpus: int | None
    """Allocatable nvidia.com/gpu; None where the node reports none."""
    cordoned: bool


def view_of(node: Any) -> NodeView:
    """Of a V1Node."""
    now = snapshot(node)
    conditions = {
        one.type: Condition(one.status, one.reason or "", (one.message or "")[:_LONGEST_MESSAGE])
        for one in node.status.conditions or []
    }
    return NodeView(conditions, now.labels, now.allocatable_gpus, now.unschedulable)


def view_before(seen: NodeSnapshot) -> NodeView:
    conditions = {name: Condition(status, None) for name, status in seen.conditions.items()}
    return NodeView(conditions, seen.labels, seen.allocatable_gpus, seen.unschedulable)


def changes(node: str, before: NodeView, now: NodeView, at: datetime) -> Iterator[Event]:
    """One event for each condition, label, count or cordon that is not as it was."""
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
    """The Kubernetes Events about one node: each once, and once more whenever it counts up."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._counts: dict[str, int] = {}

    def known(self, event: Any) -> None:
        """An Event that was there when the watch began: only what it counts from now on is news."""
        self._counts[event.metadata.uid] = _count(event)

    def news(self, event: Any) -> KubernetesEventSeen | None:
        """Of a CoreV1Event; None where it says nothing new."""
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
            at=_when(event) or datetime.now(UTC),
        )


def _count(event: Any) -> int:
    return (event.series.count if event.series else None) or event.count or 1


def _when(event: Any) -> datetime | None:
    """The last time it says it happened; which field holds that depends on the API its writer used."""
    last = event.series.last_observed_time if event.series else None
    found: datetime | None = last or event.last_timestamp or event.event_time or event.first_timestamp
    return found or event.metadata.creation_timestamp
