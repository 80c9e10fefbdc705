"""The changes of a target that a watch shows, as events of the history; heartbeats do not count. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gameday.cluster.nodes import cordon_manager, cordon_written_at, label_written_at, snapshot
from gameday.history.events import AllocatableSeen, ConditionSeen, CordonSeen, Event, KubernetesEventSeen, LabelSeen
from gameday.values.dated import WHOLE_SECOND_S, Dated
from gameday.values.nodes import NodeSnapshot

# Characters: the API server's limit for an Event's message. A condition's message has no limit.
_LONGEST_MESSAGE = 1024


MANAGED_FIELDS = "its stamp in managedFields"
"""The API server's stamp of the last write by a field's manager."""


@dataclass(frozen=True)
class Condition:
    """The state of one condition of a node."""

    status: str
    reason: str | None
    """The condition's reason; None if only the status is known, e.g. from a snapshot. A reason that comes later is
    then no change."""
    message: str = ""
    since: datetime | None = None
    """Its lastTransitionTime, by its writer's clock."""


@dataclass(frozen=True)
class NodeView:
    """A node's state as detectors and kubelets report it, without its taints."""

    conditions: Mapping[str, Condition]
    labels: Mapping[str, str]
    gpus: int | None
    """Allocatable nvidia.com/gpu; None if the node reports none."""
    cordoned: bool
    cordon_written_at: datetime | None = None
    labels_written_at: Mapping[str, datetime | None] = field(default_factory=dict)
    cordoned_by: str | None = None


@dataclass(frozen=True)
class Sight:
    """A look of a watch: its time, and the earliest time of a change that it shows."""

    at: datetime
    absent_at: datetime

    def dated(self, own: datetime | None, source: str) -> Dated:
        """Return the times of a change that Kubernetes dates to the second; `own` is None if it gives no time."""
        stamp = own.astimezone(UTC) if own else None
        return Dated(own=stamp, source=source, open_s=WHOLE_SECOND_S, absent_at=self.absent_at, seen_at=self.at)


def view_of_node(node: Any) -> NodeView:
    """Return the view of a V1Node."""
    now = snapshot(node)
    conditions = {
        condition.type: Condition(
            condition.status,
            condition.reason or "",
            (condition.message or "")[:_LONGEST_MESSAGE],
            condition.last_transition_time,
        )
        for condition in node.status.conditions or []
    }
    written = {label: label_written_at(node, label) for label in now.labels}
    return NodeView(
        conditions=conditions,
        labels=now.labels,
        gpus=now.allocatable_gpus,
        cordoned=now.unschedulable,
        cordon_written_at=cordon_written_at(node),
        labels_written_at=written,
        cordoned_by=cordon_manager(node),
    )


def view_of_snapshot(seen: NodeSnapshot) -> NodeView:
    """Return the view of a snapshot, which has no reasons of conditions."""
    conditions = {name: Condition(status, None) for name, status in seen.conditions.items()}
    return NodeView(conditions, seen.labels, seen.allocatable_gpus, seen.unschedulable)


def changes(node: str, before: NodeView, now: NodeView, sight: Sight) -> Iterator[Event]:
    """Yield an event for each condition, label, GPU count or cordon that changed."""
    at = sight.at
    for name in sorted(before.conditions.keys() | now.conditions.keys()):
        was, found = before.conditions.get(name), now.conditions.get(name)
        if found is None:
            yield ConditionSeen(node=node, condition=name, status=None, at=at)
        elif was is None or was.status != found.status or was.reason not in (None, found.reason):
            is_transition = was is None or was.status != found.status
            dated = sight.dated(found.since if is_transition else None, "lastTransitionTime")
            yield ConditionSeen(
                node=node,
                condition=name,
                status=found.status,
                reason=found.reason or "",
                message=found.message,
                at=dated.latest,
                dated=dated,
            )
    for name in sorted(before.labels.keys() | now.labels.keys()):
        if before.labels.get(name) != now.labels.get(name):
            dated = sight.dated(now.labels_written_at.get(name), MANAGED_FIELDS)
            yield LabelSeen(node=node, label=name, value=now.labels.get(name), at=dated.latest, dated=dated)
    if before.gpus != now.gpus:
        yield AllocatableSeen(node=node, gpus=now.gpus, before=before.gpus, at=at)
    if before.cordoned != now.cordoned:
        dated = sight.dated(now.cordon_written_at, MANAGED_FIELDS)
        yield CordonSeen(node=node, cordoned=now.cordoned, manager=now.cordoned_by, at=dated.latest, dated=dated)


class NodeEvents:
    """The Kubernetes Events about one node: each is new once, and again when its count grows."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._counts: dict[str, int] = {}

    def remember(self, event: Any) -> None:
        """Remember an Event (CoreV1Event) that was there when the watch began; only a higher count is new."""
        self._counts[event.metadata.uid] = _count(event)

    def new_event(self, event: Any, now: datetime) -> KubernetesEventSeen | None:
        """Return an Event (CoreV1Event) for the history, dated `now` if it has no time; None if it is not new."""
        count = _count(event)
        if count <= self._counts.get(event.metadata.uid, 0):
            return None
        self._counts[event.metadata.uid] = count
        own = _last_seen_at(event)
        # An Event may come long after its own time, because its writer queues it; that is no contradiction.
        open_s = 0.0 if own and own.microsecond else WHOLE_SECOND_S
        dated = Dated(own=own, source="the Event's own time", open_s=open_s, seen_at=now)
        return KubernetesEventSeen(
            node=self._node,
            reason=event.reason or "",
            type=event.type or "",
            source=(event.source.component if event.source else None) or event.reporting_component or "",
            message=(event.message or "")[:_LONGEST_MESSAGE],
            count=count,
            at=dated.latest,
            dated=dated,
        )


def _count(event: Any) -> int:
    return (event.series.count if event.series else None) or event.count or 1


def _last_seen_at(event: Any) -> datetime | None:
    """Return when it happened last; the field depends on the API that its writer used."""
    last = event.series.last_observed_time if event.series else None
    found: datetime | None = last or event.last_timestamp or event.event_time or event.first_timestamp
    return found or event.metadata.creation_timestamp
