"""`python -m gameday_control_plane.api_clients.informers`: clients that each keep up with all objects of a kind.

Each does what a reflector of client-go does (docs/sources.md, API server: LISTs): a LIST, then a watch from the version
that it saw last. After a failure it tries again after a growing pause, or after the server's Retry-After. It LISTs
again only if the server no longer knows its version (410). A client that keeps up by LISTs asks for everything at each
interval. The clients hold the last version and no objects.

The first line on standard input is an InformersOrder; the clients begin at the second line, and end when standard input
does. Every line on standard output is an InformersLine.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import httpx
import orjson

from gameday.api_clients.connection import open_connection, retry_after
from gameday_control_plane.api_clients.client_loop import ClientLoop
from gameday_control_plane.api_clients.informers_order import InformersLine, InformersOrder
from gameday_control_plane.api_clients.serve import run_until_input_ends, say
from gameday_control_plane.api_clients.steady_clients import cpu_seconds
from gameday_control_plane.values.api_loads import Happening, Outcome

_TIMEOUT = httpx.Timeout(30.0)
"""Time-out of each part of a request, the connection included: half of the 60 s after which an API server itself gives
up. Our own choice.
"""
_SILENT_WATCH = httpx.Timeout(30.0, read=None)
"""No time-out: an open watch may be silent for long."""
_WATCH_S = 3600
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.8, 30.0
"""Pauses of client-go's reflector: each is twice the one before, plus up to as much again at random."""


class Informers(ClientLoop):
    """The clients. Only `end` may be called from another thread than `run`."""

    def __init__(self, order: InformersOrder, tell: Callable[[InformersLine], None]) -> None:
        """Prepare the clients; each connects with its first request.

        Args:
            order: What they do.
            tell: Called with everything that happens to a client.
        """
        super().__init__()
        self._order = order
        self._tell = tell

    def _clients(self) -> Iterable[Coroutine[None, None, None]]:
        return (self._client(number) for number in range(self._order.clients))

    async def _client(self, number: int) -> None:
        version, pause_s = "", _FIRST_PAUSE_S
        first = {"resourceVersion": "0"}
        async with open_connection(self._order.server, _TIMEOUT) as http:
            while True:
                try:
                    if self._order.keep_up == "list" or not version:
                        version = await self._list(number, http, first)
                        first, pause_s = {}, _FIRST_PAUSE_S
                    if self._order.keep_up == "list":
                        await asyncio.sleep(self._order.interval_s)
                        continue
                    async for seen in self._watch(number, http, version):
                        version, pause_s = seen, _FIRST_PAUSE_S
                    self._note(number, Outcome.ENDED)
                except _Refused as refused:
                    self._note(number, refused.outcome)
                    if refused.outcome is Outcome.GONE:
                        version = ""
                        continue
                    if refused.pause_s is not None:
                        await asyncio.sleep(refused.pause_s)
                        continue
                except (httpx.HTTPError, OSError) as error:
                    timed_out = isinstance(error, httpx.TimeoutException)
                    self._note(number, Outcome.TIMEOUT if timed_out else Outcome.NO_CONNECTION)
                await asyncio.sleep(pause_s * (1 + random.random()))  # noqa: S311 - it spreads clients, and is not a secret
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _list(self, number: int, http: httpx.AsyncClient, params: dict[str, str]) -> str:
        """LIST everything, and return the answer's version. Raises _Refused and httpx.HTTPError."""
        response = await http.get(self._order.path, params=params)
        _refuse(response)
        version = str(_decoded(response.content)["metadata"]["resourceVersion"])
        self._note(number, Outcome.LISTED)
        return version

    async def _watch(self, number: int, http: httpx.AsyncClient, version: str) -> Any:
        """Yield the version of each change until the server ends the watch. Raises _Refused and httpx.HTTPError."""
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(_WATCH_S),
        }
        async with http.stream("GET", self._order.path, params=params, timeout=_SILENT_WATCH) as response:
            _refuse(response)
            is_told = False
            async for line in _lines_or_silence(response):
                if line is not None:
                    event = _decoded(line)
                    if event["type"] == "ERROR":
                        raise _Refused(_OUTCOMES.get(int(event["object"].get("code", 0)), Outcome.REFUSED), None)
                    version = str(event["object"]["metadata"]["resourceVersion"])
                if not is_told:
                    # A server answers 200 before it says 410, as the first event.
                    self._note(number, Outcome.WATCHING)
                    is_told = True
                yield version

    def _note(self, number: int, outcome: Outcome) -> None:
        self._tell(InformersLine(happened=Happening(client=number, at=round(time.monotonic(), 3), outcome=outcome)))


class _Refused(Exception):
    """The server refused; `pause_s` is its Retry-After."""

    def __init__(self, outcome: Outcome, pause_s: float | None) -> None:
        super().__init__(outcome)
        self.outcome = outcome
        self.pause_s = pause_s


_OUTCOMES = {410: Outcome.GONE, 429: Outcome.THROTTLED}
_SETTLED_S = 0.5
"""Seconds that an open watch must be silent before it counts as open: an error comes as its first event."""


def _refuse(response: httpx.Response) -> None:
    if response.status_code >= 400:
        outcome = Outcome.UNAVAILABLE if response.status_code >= 500 else Outcome.REFUSED
        raise _Refused(
            _OUTCOMES.get(response.status_code, outcome), retry_after(response.headers.get("Retry-After", ""))
        )


async def _lines_or_silence(response: httpx.Response) -> Any:
    """Yield the answer's lines, and None once if none comes for a while at its beginning."""
    lines = response.aiter_lines()
    following = asyncio.ensure_future(anext(lines, None))
    try:
        done, _ = await asyncio.wait((following,), timeout=_SETTLED_S)
        if not done:
            yield None
        while (line := await following) is not None:
            yield line
            following = asyncio.ensure_future(anext(lines, None))
    finally:
        following.cancel()


def _decoded(body: bytes | str) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        raise httpx.DecodingError("the answer is not JSON") from None


def main() -> int:
    """Keep up until standard input ends, and return the exit status."""
    clients = Informers(InformersOrder.model_validate_json(sys.stdin.readline()), say)
    return run_until_input_ends(clients, InformersLine(ready=True), lambda: InformersLine(cpu_seconds=cpu_seconds()))


if __name__ == "__main__":
    sys.exit(main())
