"""Many clients that each ask for a small object at a steady rate, one request at a time over one connection.

One at a time, because httpx can lose a request that is under way beside another one when the server says goodbye
(GOAWAY). A GET that loses its connection is sent once more, over a new connection, as client-go does.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime
from typing import Any

import httpx

from gameday import __version__
from gameday.api_clients.connection import read_token, tls_context
from gameday_control_plane.api_clients.client_loop import ClientLoop
from gameday_control_plane.api_clients.steady_order import SteadyLine, SteadyOrder
from gameday_control_plane.values.api_loads import SteadySecond

_TIMEOUT = httpx.Timeout(30.0, connect=10.0)
_WATCH_TIMEOUT = httpx.Timeout(30.0, read=None)
_WATCH_S = 3600
_PAUSE_S = 1.0


class SteadyClients(ClientLoop):
    """The clients. Only `end` may be called from another thread than `run`."""

    def __init__(self, order: SteadyOrder, tell: Callable[[SteadyLine], None]) -> None:
        """Prepare the clients; each connects with its first request.

        Args:
            order: What they do.
            tell: Called once a second, and once when every client has had an answer.

        Raises:
            HostError: The authority of the API server cannot be read.
        """
        self._order = order
        self._tell = tell
        self._tls = tls_context(order.server)
        self._second = SteadySecond(at=datetime.now(UTC))
        self._answered: set[int] = set()
        super().__init__()

    def run(self) -> None:
        """Ask until `end` is called, and report the last second."""
        super().run()
        self._tell(SteadyLine(second=self._second))

    def _clients(self) -> Iterable[Coroutine[None, None, None]]:
        yield from (self._client(number) for number in range(self._order.clients))
        yield self._tell_by_second()

    async def _client(self, number: int) -> None:
        order, spacing = self._order, 1 / self._order.rate
        async with httpx.AsyncClient(
            base_url=order.server.url,
            verify=self._tls,
            http2=order.protocol == "http2",
            http1=order.protocol == "http1",
            timeout=_WATCH_TIMEOUT if order.watch_only else _TIMEOUT,
            trust_env=False,
            limits=httpx.Limits(max_connections=1, keepalive_expiry=None),
            headers={"User-Agent": f"gameday-api-client/{__version__}", "Accept": "application/json"},
        ) as http:
            # Spread over the time between two requests, so that they do not come in volleys.
            due = time.monotonic() + spacing * number / order.clients
            connection: object = None
            while True:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if order.watch_only:
                    await self._watch(number, http)
                    await asyncio.sleep(_PAUSE_S)
                    continue
                connection = await self._ask(number, http, connection)
                due = max(due + spacing, time.monotonic())

    async def _ask(self, number: int, http: httpx.AsyncClient, before: object) -> object:
        """Send a request, and send it again if its connection ends; return what names the connection."""
        headers = {"Authorization": f"Bearer {read_token(self._order.server)}"}
        for attempt in (1, 2):
            try:
                response = await http.get(self._order.path, headers=headers)
            except httpx.HTTPError:
                self._count(**({"cut": 1} if attempt == 1 else {"requests": 1, "lost": 1}))
                continue
            connection = _name_of(response)
            again = before is not None and connection != before
            self._count(requests=1, refused=int(response.status_code >= 400), reconnects=int(again))
            if response.status_code < 400:
                self._note_answer(number)
            return connection
        return before

    async def _watch(self, number: int, http: httpx.AsyncClient) -> None:
        headers = {"Authorization": f"Bearer {read_token(self._order.server)}"}
        params = {"watch": "1", "timeoutSeconds": str(_WATCH_S)}
        try:
            async with http.stream("GET", self._order.path, params=params, headers=headers) as response:
                self._count(requests=1, refused=int(response.status_code >= 400))
                if response.status_code < 400:
                    self._note_answer(number)
                async for _ in response.aiter_raw():
                    pass
        except httpx.HTTPError:
            self._count(cut=1)

    def _note_answer(self, number: int) -> None:
        if number in self._answered:
            return
        self._answered.add(number)
        if len(self._answered) == self._order.clients:
            self._tell(SteadyLine(connected=True))

    async def _tell_by_second(self) -> None:
        due = time.monotonic()
        while True:
            due += 1
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self._tell(SteadyLine(second=self._second))
            self._second = SteadySecond(at=datetime.now(UTC))

    def _count(self, **more: int) -> None:
        now = {name: getattr(self._second, name) + by for name, by in more.items()}
        self._second = self._second.model_copy(update=now)


def _name_of(response: httpx.Response) -> object:
    """Return a name for an answer's connection: its address on this side."""
    stream: Any = response.extensions.get("network_stream")
    return stream.get_extra_info("client_addr") if stream else None


def cpu_seconds() -> float:
    """Return the user and system time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return round(used.ru_utime + used.ru_stime, 3)
