"""Watches without threads: a change reaches its follower a moment later, as something that happens on the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit

import orjson

from gameday.cluster.back_off import pause_s
from gameday.cluster.list_watch import ADDED, DELETED, MODIFIED, STATE, Key
from gameday.cluster.watch import Follower
from kubesim.apiserver.request_selectors import Predicate
from kubesim.apiserver.store import Event
from tests.support.scripted.api_server import Answer, InMemoryApiServer
from tests.support.scripted.wire import Request
from tests.support.virtual_clock import VirtualClock

WATCH_HEADER = "X-Scripted-Watch"
_SELECTORS = ("labelSelector", "fieldSelector")
# As gameday.cluster.watch has them.
_BACK_OFF_S = (0.5, 5.0)


@dataclass
class _Watch:
    """An open watch: what it lets through, and who hears of it."""

    key: str
    prefix: bytes
    """The beginning of an object's JSON: its version and kind."""
    namespace: str
    predicate: Predicate | None
    on_event: Callable[[str, bytes], None] = field(default=lambda kind, item: None)
    on_broken: Callable[[], None] = field(default=lambda: None)

    def offer(self, event: Event) -> None:
        """Pass a change on as the API server does: what begins to match was added, what ends to match is deleted."""
        if self.namespace not in ("", event.new.namespace):
            return
        was = event.old is not None and self._matches(event.old.obj)
        now = event.type != "DELETED" and self._matches(event.new.obj)
        if was or now:
            self.on_event(MODIFIED if was and now else ADDED if now else DELETED, self.prefix + event.new.tail)

    def _matches(self, obj: Any) -> bool:
        return self.predicate is None or self.predicate(obj)


class Watches:
    """The watches that are open at a server."""

    def __init__(self, server: InMemoryApiServer) -> None:
        self._server = server
        self._open: dict[str, _Watch] = {}
        self._count = 0
        server.observe(self._changed)

    def open(self, request: Request) -> Answer:
        """Answer a watch with the state at its beginning, as a list, and its own number in a header."""
        parts = urlsplit(request.url)
        selectors = [(name, value) for name, value in parse_qsl(parts.query) if name in _SELECTORS]
        url = parts._replace(query=urlencode(selectors)).geturl()
        answer = self._server.ask("GET", url, request.headers)
        if answer.status >= 300:
            return answer
        self._count += 1
        number = str(self._count)
        self._open[number] = _Watch(*self._server.predicate(url))
        return Answer(answer.status, answer.body, {**answer.headers, WATCH_HEADER: number})

    def follow(self, number: str, on_event: Callable[[str, bytes], None], on_broken: Callable[[], None]) -> None:
        """Let somebody hear of an open watch."""
        watch = self._open[number]
        watch.on_event, watch.on_broken = on_event, on_broken

    def close(self, number: str) -> None:
        """End a watch for its follower's sake."""
        self._open.pop(number, None)

    def break_all(self) -> None:
        """End all watches, as a server does that goes away."""
        broken, self._open = list(self._open.values()), {}
        for watch in broken:
            watch.on_broken()

    def _changed(self, key: str, event: Event) -> None:
        for watch in list(self._open.values()):
            if watch.key == key:
                watch.offer(event)


class ScriptedFollower(Follower):
    """A follower whose changes happen on a virtual clock."""

    def __init__(
        self,
        watches: Watches,
        latency_s: Callable[[], float],
        clock: VirtualClock,
        list_call: Callable[..., Any],
        on_change: Callable[[str, Any], None] | None,
        decode: Callable[[dict[str, Any]], Any] | None,
        **selection: Any,
    ) -> None:
        super().__init__(list_call, on_change, decode, clock=clock, **selection)
        self._virtual: VirtualClock = clock
        self._watches = watches
        self._latency_s = latency_s
        self._number = ""
        self._failures = 0

    def __enter__(self) -> Self:
        self._connect()
        return self

    def stop(self) -> None:
        self._stopping.set()
        self._watches.close(self._number)

    def _connect(self) -> None:
        if self._stopping.is_set():
            return
        try:
            answer = self._list_watch._open("")
            page = orjson.loads(answer.data)
        except Exception as error:  # as the product's own thread does
            self._failures += 1
            self._virtual.after(max(self._failed(error), pause_s(self._failures, *_BACK_OFF_S)), self._connect)
            return
        self._failures = 0
        self._number = answer.headers[WATCH_HEADER]
        self._watches.follow(self._number, self._changed, self._broken)
        self._take(STATE, ("", ""), {_key(item): self._list_watch._decode(item) for item in page.get("items") or ()})

    def _changed(self, kind: str, item: bytes) -> None:
        self._virtual.after(self._latency_s(), partial(self._arrive, self._number, kind, item))

    def _arrive(self, number: str, kind: str, item: bytes) -> None:
        if number == self._number and not self._stopping.is_set():
            found = orjson.loads(item)
            self._take(kind, _key(found), self._list_watch._decode(found))

    def _broken(self) -> None:
        self._number, self._failures = "", 1
        self._down_since = self._virtual.monotonic()
        self._virtual.after(pause_s(self._failures, *_BACK_OFF_S), self._connect)


def _key(item: dict[str, Any]) -> Key:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def is_watch(request: Request) -> bool:
    """Return True if a request asks for a watch."""
    return request.method == "GET" and "watch=true" in request.url.lower()
