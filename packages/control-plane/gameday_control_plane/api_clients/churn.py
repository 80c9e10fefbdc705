"""The ordinary life of a busy cluster, made by one process: steady writes, open watches, and now and then a LIST.

One thread with an event loop does it all; 50 writes a second and ten watches take a tenth of a core.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import httpx

from gameday.api_clients.connection import ErrorWord, error_word, open_connection
from gameday.errors import HostError
from gameday.host.base import ApiServer
from gameday_control_plane.api_clients.lists import LOAD_LABEL, NAMESPACE
from gameday_control_plane.api_clients.objects import load_object
from gameday_control_plane.values.api_requests import ApiRequest, RequestVerb

_TIMEOUT = httpx.Timeout(60.0, connect=10.0)
_WATCH_TIMEOUT = httpx.Timeout(None, connect=10.0)
_WATCH_AGAIN_S = 1.0
_END_TIMEOUT_S = 10.0
_WRITER, _LISTER = 0, 1
"""Numbers of the clients in the log of requests."""


@dataclass(frozen=True)
class ChurnOrder:
    """The load: the number of objects, and how often they are written."""

    server: ApiServer
    resource: str
    load: str
    """Value of the objects' label, and the beginning of their names."""
    objects: int
    """Objects that stay, and are updated in turn."""
    object_size: int
    rate: float
    """Writes per second: a create, an update and a delete in turn."""
    watches: int
    list_every_s: float


class Churn:
    """A load that has been started, and runs until its `end`."""

    def __init__(self, order: ChurnOrder) -> None:
        self._order = order
        self._path = f"/api/v1/namespaces/{NAMESPACE}/{order.resource}"
        self._lock = threading.Lock()
        self._requests: list[ApiRequest] = []
        self._taken = 0
        self._watching = 0
        self.ended_watches = 0
        """Number of watches that the server ended; each was opened again."""
        self._all_watch = threading.Event()
        self._end = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="churn", daemon=True)
        self._thread.start()

    def wait_until_watching(self, timeout_s: float) -> bool:
        """Wait until every watch has been answered; return True if that was in time."""
        return self._all_watch.wait(timeout_s)

    @property
    def requests(self) -> tuple[ApiRequest, ...]:
        """All writes and LISTs that have ended."""
        with self._lock:
            return tuple(self._requests)

    def take(self) -> Sequence[ApiRequest]:
        """Return the requests that have ended since the last call."""
        with self._lock:
            new, self._taken = self._requests[self._taken :], len(self._requests)
        return new

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def end(self) -> None:
        """End the load, even in mid-request; idempotent. Raises HostError if it does not end."""
        self._end.set()
        self._thread.join(_END_TIMEOUT_S)
        if self._thread.is_alive():
            raise HostError(f"the load did not end within {_END_TIMEOUT_S:g} s")

    async def _run(self) -> None:
        order = self._order
        async with (
            open_connection(order.server, _TIMEOUT, 2) as http,
            open_connection(order.server, _WATCH_TIMEOUT, order.watches) as watching,
        ):
            parts = [self._write(http), self._list(http), *(self._watch(watching) for _ in range(order.watches))]
            tasks = [asyncio.create_task(part) for part in parts]
            await asyncio.to_thread(self._end.wait)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _write(self, http: httpx.AsyncClient) -> None:
        order, due = self._order, time.monotonic()
        for number in range(1 << 62):
            # A late write is not made up for: otherwise a server's restart would be followed by a storm of writes.
            due = max(due + 1 / order.rate, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
            turn, kind = divmod(number, 3)
            new = order.objects + turn
            if kind == 0:
                await self._ask(http, _WRITER, number, "create", "POST", self._path, self._object(new, number))
            elif kind == 1:
                place = turn % order.objects
                path = f"{self._path}/{order.load}-{place:05}"
                await self._ask(http, _WRITER, number, "update", "PUT", path, self._object(place, number))
            else:
                await self._ask(http, _WRITER, number, "delete", "DELETE", f"{self._path}/{order.load}-{new:05}")

    async def _list(self, http: httpx.AsyncClient) -> None:
        for number in range(1 << 62):
            await self._ask(http, _LISTER, number, "list", "GET", self._path)
            await asyncio.sleep(self._order.list_every_s)

    async def _watch(self, http: httpx.AsyncClient) -> None:
        query = {"watch": "1", "allowWatchBookmarks": "true", "labelSelector": f"{LOAD_LABEL}={self._order.load}"}
        is_first = True
        while True:
            try:
                async with http.stream("GET", self._path, params=query) as response:
                    if is_first and response.status_code == httpx.codes.OK:
                        is_first = False
                        self._watching += 1
                        if self._watching == self._order.watches:
                            self._all_watch.set()
                    async for _ in response.aiter_raw():
                        pass
            except httpx.HTTPError:
                pass
            self.ended_watches += 1
            await asyncio.sleep(_WATCH_AGAIN_S)

    def _object(self, number: int, seed: int) -> bytes:
        return load_object(self._order.resource, self._order.load, number, self._order.object_size, seed)

    async def _ask(
        self,
        http: httpx.AsyncClient,
        client: int,
        number: int,
        verb: RequestVerb,
        method: str,
        path: str,
        content: bytes | None = None,
    ) -> None:
        """Send one request, read its answer to the end, and log it."""
        sent_at, start = datetime.now(UTC), time.monotonic()
        first_byte: float | None = None
        status, size = 0, 0
        error: ErrorWord = ""
        try:
            headers = {"Content-Type": "application/json"} if content else None
            async with http.stream(method, path, content=content, headers=headers) as response:
                first_byte, status = time.monotonic(), response.status_code
                async for chunk in response.aiter_raw():
                    size += len(chunk)
        except (httpx.HTTPError, OSError) as failure:
            error = error_word(failure)
        done = ApiRequest(
            client=client,
            round=number,
            attempt=1,
            verb=verb,
            sent_at=sent_at,
            start=round(start, 6),
            first_byte=first_byte and round(first_byte, 6),
            end=round(time.monotonic(), 6),
            status=status,
            bytes=size,
            error=error,
        )
        with self._lock:
            self._requests.append(done)
