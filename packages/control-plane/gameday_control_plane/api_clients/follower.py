"""A client that keeps up with many objects, by repeated LISTs or by a watch.

It holds what a controller would hold: every object, decoded, by its name. In the mode `metadata` it holds only the
metadata, and reads an object when that has changed.
"""

from __future__ import annotations

import resource
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import orjson
from pydantic import Field

from gameday.api_clients.connection import tls_context
from gameday.api_clients.exchange import Exchange, Failed
from gameday.host.base import ApiServer
from gameday_control_plane.api_clients.lists import Form, Read, list_request
from gameday_control_plane.api_clients.process import Line
from gameday_control_plane.values.api_loads import FollowMode, Sighting, Traffic
from gameday_control_plane.values.api_requests import LoadModel

_PAGE = 500
"""Objects in a page, the same as client-go's pager and kubectl ask for."""
_PAUSE_S = 1.0
"""Pause after a failed request; client-go's reflector begins at 0.8 s."""
_WATCH_S = 300
"""Seconds after which the server ends a watch; client-go's reflector asks for 5 to 10 minutes."""
_METADATA_ACCEPT = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class FollowOrder(LoadModel):
    """The order for a following client."""

    server: ApiServer
    resource: str
    mode: FollowMode
    interval_s: float = Field(gt=0, description="from the beginning of one LIST to that of the next; without a watch")


class FollowerLine(Line):
    """A line of a following client's process; one of its fields is set."""

    seen: tuple[Sighting, ...] = Field(default=(), description="versions that are new in its view")
    synced: Traffic | None = Field(default=None, description="up to the moment at which it had seen every object")
    ended: Traffic | None = Field(default=None, description="from its beginning to its end; the last line")

    @property
    def is_last(self) -> bool:
        return self.ended is not None


class Follower:
    """The client. Only `end` may be called from another thread than `run`."""

    def __init__(self, order: FollowOrder, tell: Callable[[FollowerLine], None]) -> None:
        """Prepare a client; it connects with its first request.

        Args:
            order: What it follows.
            tell: Called with what is new in its view, and once when it has seen every object.

        Raises:
            HostError: The authority of the API server cannot be read.
        """
        tls: ssl.SSLContext = tls_context(order.server)
        form = Form.METADATA if order.mode is FollowMode.METADATA else Form.JSON
        read = Read.ANY if order.mode is FollowMode.POLL_CACHED else Read.LATEST
        self._list_request = list_request(order.resource, form, read, "")
        self._order = order
        self._tell = tell
        self._asks = Exchange(order.server, tls)
        self._watches = Exchange(order.server, tls)
        self._ended = threading.Event()
        self._cpu_before = _cpu_seconds()
        self._traffic = Traffic()
        self._view: dict[str, Any] = {}
        self._is_synced = False

    @property
    def traffic(self) -> Traffic:
        """Its requests and their cost so far."""
        return self._traffic.model_copy(update={"cpu_seconds": round(_cpu_seconds() - self._cpu_before, 3)})

    def run(self) -> None:
        """Follow until `end` is called."""
        while not self._ended.is_set():
            began = time.monotonic()
            try:
                version = self._list()
                while self._order.mode.watches and version and not self._ended.is_set():
                    version = self._watch(version)
            except Failed:
                if not self._ended.is_set():
                    self._count(failed=1)
                    self._ended.wait(_PAUSE_S)
                continue
            if not self._order.mode.watches:
                self._ended.wait(max(0.0, began + self._order.interval_s - time.monotonic()))

    def end(self) -> None:
        """End the client, even in mid-request."""
        self._ended.set()
        self._asks.end()
        self._watches.end()

    def _list(self) -> str:
        """Read every object, and return the version of the answer. Raises Failed."""
        query = dict(self._list_request.query)
        if self._order.mode is FollowMode.PAGES:
            query["limit"] = str(_PAGE)
        view: dict[str, Any] = {}
        while True:
            self._count(lists=1)
            body = self._asks.ask("GET", self._list_request.path, query=query, accept=self._list_request.accept)
            self._count(bytes=len(body))
            page = _decoded(body)
            objects = {str(one["metadata"]["name"]): one for one in page["items"]}
            self._tell_new(objects)
            view |= objects
            more = page["metadata"].get("continue")
            if not more:
                break
            query["continue"] = more
        self._view = view
        if not self._is_synced:
            self._is_synced = True
            self._tell(FollowerLine(synced=self.traffic))
        return str(page["metadata"]["resourceVersion"])

    def _watch(self, version: str) -> str:
        """Follow the changes since a version; return the last one seen, empty if everything must be listed again.

        Raises:
            Failed: The watch cannot be opened, or was cut off.
        """
        for event in self._events(version):
            kind, changed = event["type"], event["object"]
            if kind == "ERROR":
                return ""  # 410: the server no longer knows that version
            version = str(changed["metadata"]["resourceVersion"])
            if kind == "BOOKMARK":
                continue
            name = str(changed["metadata"]["name"])
            if kind == "DELETED":
                self._view.pop(name, None)
            else:
                whole = self._get(name) if self._order.mode is FollowMode.METADATA else changed
                self._tell_new({name: whole})
                self._view[name] = whole
        return version

    def _events(self, version: str) -> Iterator[Any]:
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(_WATCH_S),
        }
        accept = _METADATA_ACCEPT if self._order.mode is FollowMode.METADATA else self._list_request.accept
        self._count(watches=1)
        for line in self._watches.lines(self._list_request.path, query=query, accept=accept):
            self._count(bytes=len(line))
            yield _decoded(line)

    def _get(self, name: str) -> Any:
        self._count(gets=1)
        body = self._asks.ask("GET", f"{self._list_request.path}/{name}")
        self._count(bytes=len(body))
        return _decoded(body)

    def _tell_new(self, objects: dict[str, Any]) -> None:
        """Report objects in another version than the view's. The first view of all objects is not reported."""
        if not self._is_synced:
            return
        at = time.monotonic()
        seen = tuple(
            Sighting(name=name, version=_version(new), at=round(at, 6))
            for name, new in objects.items()
            if name not in self._view or _version(new) > _version(self._view[name])
        )
        if seen:
            self._tell(FollowerLine(seen=seen))

    def _count(self, **more: int) -> None:
        now = {name: getattr(self._traffic, name) + by for name, by in more.items()}
        self._traffic = self._traffic.model_copy(update=now)


def _decoded(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        raise Failed(0, "the answer is not JSON") from None


def _version(one: Any) -> int:
    """Return an object's resourceVersion, a number that orders the versions of one object."""
    return int(one["metadata"]["resourceVersion"])


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
