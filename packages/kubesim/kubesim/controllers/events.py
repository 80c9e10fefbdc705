"""Records Kubernetes Events, never so many that they slow a controller down.

Writes go through one bounded queue in the background. An event that repeats (same object, reason and message) raises
its count on the first one, at most once per REPEAT_PAUSE_S; what does not fit in the queue is dropped and counted in
the log, because events are only commentary.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

from kubesim.client import ApiClient, Object
from kubesim.clock import now_utc, rfc3339
from kubesim.errors import ApiError

log = logging.getLogger(__name__)

QUEUE_LIMIT = 20_000
REMEMBERED_LIMIT = 4096  # client-go's EventCorrelator remembers as many (maxLruCacheEntries)
REPEAT_PAUSE_S = 10.0
WRITERS = 2

NORMAL = "Normal"
WARNING = "Warning"


@dataclass
class _WrittenEvent:
    """An event that was written, kept to raise its count."""

    path: str
    count: int
    written_at: float  # monotonic seconds


class EventRecorder:
    """Events of one component about objects it handles."""

    def __init__(self, api: ApiClient, component: str) -> None:
        self._api = api
        self._component = component
        self._known: dict[tuple[str, ...], _WrittenEvent] = {}
        self._queue: asyncio.Queue[tuple[str, str, Object]] = asyncio.Queue(QUEUE_LIMIT)
        self._dropped = 0

    def record(
        self, about: Object, kind: str, api_version: str, reason: str, message: str, level: str = NORMAL
    ) -> None:
        """Queue an event with `message` about an object; return at once."""
        meta = about["metadata"]
        identity = (kind, meta.get("uid", ""), meta["name"], reason, message)
        now = rfc3339(now_utc())
        written = self._known.pop(identity, None)
        if written is None:
            event = self._new(about, kind, api_version, now, level)
            event["reason"], event["message"] = reason, message
            path = f"/api/v1/namespaces/{event['metadata']['namespace']}/events"
            written = _WrittenEvent(f"{path}/{event['metadata']['name']}", 1, time.monotonic())
            self._put("POST", path, event)
        else:
            written.count += 1
            if time.monotonic() - written.written_at >= REPEAT_PAUSE_S:
                written.written_at = time.monotonic()
                self._put("PATCH", written.path, {"count": written.count, "lastTimestamp": now})
        self._known[identity] = written  # last used goes last
        while len(self._known) > REMEMBERED_LIMIT:
            del self._known[next(iter(self._known))]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(self._write())

    def _new(self, about: Object, kind: str, api_version: str, now: str, level: str) -> Object:
        meta = about["metadata"]
        namespace = meta.get("namespace") or "default"
        involved = {"apiVersion": api_version, "kind": kind, "name": meta["name"], "uid": meta.get("uid", "")}
        if meta.get("namespace"):
            involved["namespace"] = namespace
        return {
            "apiVersion": "v1",
            "kind": "Event",
            # The name client-go gives: the object's name and the time in hexadecimal nanoseconds.
            "metadata": {"name": f"{meta['name']}.{time.time_ns():x}", "namespace": namespace},
            "involvedObject": involved,
            "type": level,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
        }

    def _put(self, method: str, path: str, body: Object) -> None:
        try:
            self._queue.put_nowait((method, path, body))
        except asyncio.QueueFull:
            self._dropped += 1
            if self._dropped == 1:
                log.warning("events of %s come faster than they can be written; some are dropped", self._component)

    async def _write(self) -> None:
        while True:
            method, path, body = await self._queue.get()
            try:
                if method == "POST":
                    await self._api.post(path, body)
                else:
                    await self._api.patch(path, body)
            except ApiError as error:
                log.debug("event not written: %s", error)
