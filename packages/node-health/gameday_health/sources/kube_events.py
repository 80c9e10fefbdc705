"""Kubernetes Events about nodes as signals, from a watch that begins with the hour that the API server still has."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

from gameday.cluster.custom_resources import list_call
from gameday.cluster.json_api import JsonApi
from gameday.cluster.list_watch import DELETED
from gameday.cluster.loki import nanoseconds
from gameday.cluster.watch import Follower
from gameday_health.model import digest
from gameday_health.signal import Signal, SignalKind
from gameday_health.sources.base import OnSignal, Source

_OURS = "gameday-"
"""Prefix of our own components' names: their Events are effects of signals, not signals."""
_LONGEST_TEXT = 400
_TROUBLE_AFTER_S = 30.0
_SELECTOR = "involvedObject.kind=Node"


class _Event(NamedTuple):
    node: str
    reason: str
    type: str
    component: str
    message: str
    uid: str
    at: datetime


class EventWatch(Source):
    """The Events about nodes, without those of our own components."""

    kind = SignalKind.EVENT

    def __init__(self, api: JsonApi, since_ns: int, on_signal: OnSignal) -> None:
        """Prepare to watch.

        Args:
            api: The API server.
            since_ns: Unix time; older Events are already handled, or too old.
            on_signal: Takes the signals.
        """
        self._on_signal = on_signal
        self._since_ns = since_ns
        list_events = list_call(api.client, "v1", "events", namespace="default")
        self._watch = Follower(list_events, self._changed, _event, field_selector=_SELECTOR)

    def start(self) -> None:
        self._watch.__enter__()

    def stop(self) -> None:
        self._watch.stop()

    def trouble(self) -> str:
        return self._watch.trouble(_TROUBLE_AFTER_S)

    def _changed(self, kind: str, event: _Event) -> None:
        if kind == DELETED or event.component.startswith(_OURS) or nanoseconds(event.at) < self._since_ns:
            return
        labels = {"component": event.component, "type": event.type}
        key = digest(f"{event.uid} {event.at.isoformat()}")
        self._on_signal(
            Signal(
                event.node,
                SignalKind.EVENT,
                event.reason,
                event.at,
                datetime.now(UTC),
                event.message,
                labels=labels,
                key=key,
            )
        )


def _event(item: dict[str, Any]) -> _Event:
    about, meta = item.get("involvedObject") or {}, item.get("metadata") or {}
    series, source = item.get("series") or {}, item.get("source") or {}
    return _Event(
        node=str(about.get("name", "")),
        reason=str(item.get("reason", "")),
        type=str(item.get("type", "")),
        component=str(source.get("component") or item.get("reportingComponent") or ""),
        message=str(item.get("message", ""))[:_LONGEST_TEXT],
        uid=str(meta.get("uid", "")),
        at=_moment(
            series.get("lastObservedTime"),
            item.get("lastTimestamp"),
            item.get("eventTime"),
            meta.get("creationTimestamp"),
        ),
    )


def _moment(*texts: object) -> datetime:
    for text in texts:
        try:
            found = datetime.fromisoformat(str(text))
        except ValueError:
            continue
        if found.tzinfo:
            return found
    return datetime.now(UTC)
