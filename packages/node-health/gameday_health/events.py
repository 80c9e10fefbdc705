"""Kubernetes Events on nodes, counted instead of repeated: at most one write per node and reason a minute."""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from gameday.cluster.json_api import NOT_FOUND, JsonApi
from gameday.cluster.kube_errors import reason_of
from gameday.errors import KubernetesError
from gameday_health.api import EVENTS
from gameday_health.model import MANAGER

log = logging.getLogger(__name__)

_BETWEEN_WRITES_S = 60.0
_MOST_SERIES = 5000
_MOST_AT_ONCE = 8
_LONGEST_MESSAGE = 1024  # the API's own limit on an Event's note


@dataclass
class _Series:
    uid: str
    kind: str
    message: str
    last: datetime
    unsent: int = 0
    sent: int = 0
    name: str = ""
    first: datetime = field(default_factory=lambda: datetime.now(UTC))
    not_before: float = 0.0


class NodeEvents:
    """Events to be written, best effort: if one cannot be written now, it is written later with its count, or never."""

    def __init__(self, api: JsonApi) -> None:
        self._api = api
        self._series: OrderedDict[tuple[str, str], _Series] = OrderedDict()

    def add(self, node: str, uid: str, reason: str, message: str, at: datetime, *, warning: bool) -> None:
        """Count one occurrence; keep the message and time of the newest."""
        kind = "Warning" if warning else "Normal"
        series = self._series.setdefault((node, reason), _Series(uid, kind, message, at, first=at))
        series.unsent += 1
        series.message, series.last, series.kind = message[:_LONGEST_MESSAGE], max(series.last, at), kind
        self._series.move_to_end((node, reason))
        if len(self._series) > _MOST_SERIES:
            self._series.popitem(last=False)

    def seconds_until_due(self) -> float:
        """Return the seconds until `flush` has something to do, or infinity if nothing waits."""
        waiting = [series.not_before for series in self._series.values() if series.unsent]
        return max(0.0, min(waiting, default=math.inf) - time.monotonic())

    def flush(self) -> None:
        """Write at most eight of the due Events; the first failure ends it until the next call."""
        now = time.monotonic()
        due = ((key, series) for key, series in self._series.items() if series.unsent and series.not_before <= now)
        # Few, so that a node never waits for them before it is tainted.
        for (node, reason), series in list(islice(due, _MOST_AT_ONCE)):
            series.not_before = time.monotonic() + _BETWEEN_WRITES_S
            try:
                self._send(node, reason, series)
            except KubernetesError as error:
                log.warning("event %s of node %s not written: %s", reason, node, reason_of(error))
                return

    def _send(self, node: str, reason: str, series: _Series) -> None:
        count = series.sent + series.unsent
        if series.name:
            patch = {"count": count, "lastTimestamp": _stamp(series.last), "message": series.message}
            try:
                self._api.request("PATCH", f"{EVENTS}/{series.name}", patch)
            except KubernetesError as error:
                if error.status != NOT_FOUND:  # Events expire, after an hour by default
                    raise
                series.first, count = series.last, series.unsent
                self._create(node, reason, series, count)
        else:
            self._create(node, reason, series, count)
        series.sent, series.unsent = count, 0

    def _create(self, node: str, reason: str, series: _Series, count: int) -> None:
        name = f"{node}.{time.time_ns():x}"
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": series.uid},
            "reason": reason,
            "message": series.message,
            "type": series.kind,
            "count": count,
            "firstTimestamp": _stamp(series.first),
            "lastTimestamp": _stamp(series.last),
            "source": {"component": MANAGER, "host": node},
            "reportingComponent": MANAGER,
            "reportingInstance": MANAGER,
        }
        self._api.request("POST", EVENTS, body)
        series.name = name


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
