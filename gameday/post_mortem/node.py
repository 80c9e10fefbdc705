"""The node by Kubernetes' account: its present state, its Events, and its taints as metrics kept them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from kubernetes import client

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.nodes import decided_at, snapshot, taint_manager, taints_of, taints_written_at
from gameday.cluster.prometheus import Prometheus, Series
from gameday.history.events import Event, HopSeen, KubernetesEventSeen, NodeSeen, TaintSeen
from gameday.post_mortem.alerts import between, episodes
from gameday.values.nodes import Taint
from gameday.values.results import Hop

_PAGE = 500
_NAMESPACE = "default"
"""The namespace of Events about objects without a namespace (client-go's EventSinkImpl)."""
_MOST_EVENTS = 2000
_LONGEST_MESSAGE = 600


def node_now(node: client.V1Node, start: datetime, end: datetime) -> list[Event]:
    """Return the node's present state, and what its own time stamps say about the window."""
    events: list[Event] = [NodeSeen(phase="after", snapshot=snapshot(node))]
    decided, written = decided_at(node), taints_written_at(node)
    if decided and start <= decided <= end:
        source = "the node-health controller's annotation"
        events.append(HopSeen(hop=Hop.DECIDED, node=node.metadata.name, at=decided, source=source))
    if written and decided and written <= decided < written + timedelta(seconds=1):
        written = decided  # the decision caused the write, which Kubernetes stamps only to the second
    if written and start <= written <= end:
        events += [
            TaintSeen(node=node.metadata.name, taint=taint, present=True, manager=taint_manager(node), at=written)
            for taint in taints_of(node)
        ]
    return events


def node_events(kubernetes: Kubernetes, node: str, start: datetime, end: datetime) -> list[KubernetesEventSeen]:
    """Return Events about the node that were last seen within the window or later, and first seen before its end."""
    selector = f"involvedObject.kind=Node,involvedObject.name={node}"
    found: list[KubernetesEventSeen] = []
    token: str | None = None
    with kubernetes.explained(f"list the events of node {node}"):
        while len(found) < _MOST_EVENTS:
            page = kubernetes.core.list_namespaced_event(
                _NAMESPACE, field_selector=selector, limit=_PAGE, _continue=token
            )
            found += [seen for event in page.items if (seen := _event(node, event)) and start <= seen.at <= end]
            token = page.metadata._continue
            if not token:
                break
    return sorted(found, key=lambda event: event.at)


def _event(node: str, event: Any) -> KubernetesEventSeen | None:
    """Return the event, dated by its first occurrence; None if it has no time."""
    at = event.first_timestamp or event.event_time or event.last_timestamp or event.metadata.creation_timestamp
    if at is None:
        return None
    source = event.reporting_component or (event.source.component if event.source else "")
    return KubernetesEventSeen(
        node=node,
        reason=event.reason or "",
        type=event.type or "",
        source=source or "",
        message=(event.message or "")[:_LONGEST_MESSAGE],
        count=event.count or 1,
        at=at.astimezone(UTC),
    )


def taint_history(prometheus: Prometheus, node: str, start: datetime, end: datetime) -> list[TaintSeen]:
    """Return the taints that came and went, by kube-state-metrics; empty if it is not scraped.

    A taint that was there when the window began, or when kube-state-metrics first reported in it, is marked
    `at_baseline`. A restart of kube-state-metrics begins new series for the same taints. While it says nothing of the
    node at all, no taint comes or goes.
    """
    named = f"{{node={json.dumps(node)}}}"
    spoke = sorted(
        at for one in prometheus.stored_samples(f"kube_node_info{named}", end - start, end) for at, _ in one.points
    )
    of_taint: dict[Taint, list[Series]] = defaultdict(list)
    for series in prometheus.stored_samples(f"kube_node_spec_taint{named}", end - start, end):
        of_taint[_taint(series.labels)].append(series)
    events: list[TaintSeen] = []
    for stretch in episodes(of_taint.values(), end, spoke):
        seen = TaintSeen(
            node=node,
            taint=_taint(stretch.labels),
            present=True,
            manager="kube-state-metrics",
            at=stretch.start,
            at_baseline=stretch.stood_at(start) or not between(spoke, start, stretch.start),
        )
        events.append(seen)
        if not stretch.open_end:
            events.append(seen.model_copy(update={"present": False, "at": stretch.end, "at_baseline": False}))
    return events


def _taint(labels: Mapping[str, str]) -> Taint:
    return Taint(key=labels.get("key", ""), value=labels.get("value", ""), effect=labels.get("effect", ""))


def merged_taints(kept: Sequence[TaintSeen], now: Sequence[Event]) -> list[Event]:
    """Merge both accounts of the taints: metrics know each that came, managedFields date the last to the second."""
    events: list[Event] = list(kept)
    for event in now:
        if not isinstance(event, TaintSeen):
            events.append(event)
            continue
        same = [seen for seen in kept if seen.taint == event.taint]
        if not same:
            events.append(event)
        elif same[-1].present and event.at < same[-1].at:
            events[events.index(same[-1])] = event
    return events
