"""Stands between one game-day and the API server: stops it exactly between an intent and its act, or serves it badly.

No hook in production code can do this honestly: the run cannot tell this
server from a real one that is slow, or at whose door its machine dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import aiohttp
from aiohttp import web

from kubesim.kubeconfig import Kubeconfig

T = TypeVar("T")
# Nobody holds a request for longer; a run that was killed does not wait for it anyway.
_HELD_AT_MOST_S = 120.0
_HOP_BY_HOP = frozenset({"host", "connection", "content-length", "transfer-encoding"})


@dataclass(frozen=True)
class Asked:
    """One request as it came in."""

    method: str
    path: str
    query: str
    body: str

    @property
    def watches(self) -> bool:
        return "watch=true" in self.query.lower()

    @property
    def writes(self) -> bool:
        return self.method not in ("GET", "HEAD")


@dataclass
class Gate:
    """Stops the first request that `matches`: before the server sees it, or with the answer in hand."""

    matches: Callable[[Asked], bool]
    after: bool
    reached: threading.Event = field(default_factory=threading.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    async def stop(self) -> None:
        self.reached.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HELD_AT_MOST_S):
                await self.opened.wait()


KINDS = ("slow", "429", "500", "409", "reset", "lost answer", "truncated watch", "410", "time-out")


class Weather:
    """What goes wrong with which request: a `share` of them, by a seed; a time-out comes once, for it costs 15 s."""

    def __init__(self, seed: int, share: float, kinds: tuple[str, ...] = KINDS) -> None:
        self._random = random.Random(seed)
        self._share = share
        self._kinds = list(kinds)
        self.met: list[str] = []

    def of(self, asked: Asked) -> str:
        """The kind of trouble this request meets; empty for none."""
        if not self._kinds or self._random.random() >= self._share:
            return ""
        kind = self._random.choice(self._kinds)
        if kind == "time-out":
            self._kinds.remove(kind)
        if (kind in ("truncated watch", "410") and not asked.watches) or (kind == "409" and not asked.writes):
            return ""
        if kind not in ("truncated watch", "410", "slow", "reset") and asked.watches:
            return ""
        self.met.append(kind)
        return kind


class ApiProxy:
    """A plain-HTTP way to the API server of a kubeconfig; a context manager with a thread of its own."""

    def __init__(self, upstream: Kubeconfig) -> None:
        """`upstream` says where and whom to trust; who asks is the caller's own affair, by the token it sends."""
        self._upstream = upstream
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._gate: Gate | None = None
        self.weather: Weather | None = None
        self.asked: list[Asked] = []
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._serve())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)

    def arm(self, gate: Gate | None) -> None:
        self._gate = gate

    def open(self, gate: Gate) -> None:
        self._loop.call_soon_threadsafe(gate.opened.set)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    async def _serve(self) -> None:
        connector = aiohttp.TCPConnector(ssl=self._upstream.tls or True, limit=0)
        # Nothing is added to what the caller said: a body without a Content-Type stays one.
        said = ("Content-Type", "User-Agent", "Accept", "Accept-Encoding")
        self._session = aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            skip_auto_headers=said,
            timeout=aiohttp.ClientTimeout(total=None),
        )
        app = web.Application(client_max_size=8 << 20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _end(self) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        asked = Asked(request.method, request.path, request.query_string, body.decode("utf-8", "replace"))
        self.asked.append(asked)
        gate = self._gate
        if gate is None or gate.reached.is_set() or not gate.matches(asked):
            gate = None
        if gate and not gate.after:
            await gate.stop()
        trouble = self.weather.of(asked) if self.weather else ""
        if answer := await self._refusal(request, trouble):
            return answer
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP}
        url = f"{self._upstream.server}{request.raw_path}"
        try:
            async with self._session.request(request.method, url, headers=headers, data=body or None) as answered:
                if asked.watches and answered.status == 200:
                    return await self._stream(request, answered, trouble)
                content = await answered.read()
        except aiohttp.ClientError:
            return _cut(request)
        if gate and gate.after:
            await gate.stop()
        if trouble == "lost answer":
            return _cut(request)
        kept = {k: v for k, v in answered.headers.items() if k.lower() not in _HOP_BY_HOP}
        return web.Response(status=answered.status, body=content, headers=kept)

    async def _refusal(self, request: web.Request, trouble: str) -> web.StreamResponse | None:
        """The server's own error, sent before it did anything."""
        match trouble:
            case "slow":
                await asyncio.sleep(0.7)
            case "time-out":
                await asyncio.sleep(20)
                return _cut(request)
            case "429":
                return _status(429, "TooManyRequests", {"Retry-After": "1"})
            case "500":
                return _status(500, "InternalError")
            case "409":
                return _status(409, "Conflict")
            case "410":
                return _status(410, "Expired")
            case "reset":
                return _cut(request)
        return None

    async def _stream(self, request: web.Request, answered: aiohttp.ClientResponse, trouble: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": answered.headers["Content-Type"]})
        await response.prepare(request)
        async for chunk in answered.content.iter_any():
            if trouble == "truncated watch":
                await response.write(chunk[: len(chunk) // 2])
                return _cut(request)
            await response.write(chunk)
        return response


def _status(code: int, reason: str, headers: dict[str, str] | None = None) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}
    text = json.dumps({**body, "message": f"made up by the proxy: {reason}"})
    return web.Response(status=code, text=text, content_type="application/json", headers=headers)


def _cut(request: web.Request) -> web.Response:
    """Reset the connection: the caller learns nothing."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


class Switch:
    """A TCP way to another server that can be cut for good: the server that is gone, for one run only."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="switch", daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(20)
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)

    async def _serve(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(20)

    def mend(self) -> None:
        asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(20)

    async def _cut(self) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        await asyncio.gather(_pump(reader, back), _pump(there, writer))
        self._writers -= {writer, back}


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    writer.close()
