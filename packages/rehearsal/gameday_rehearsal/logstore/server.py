"""Loki's HTTP and websocket endpoints over a `Store`."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from aiohttp import WSMsgType, web

from gameday.errors import LogQLError, TooManyStreamsError
from gameday_rehearsal.logstore import times
from gameday_rehearsal.logstore.logql import Query, parse, parse_selector
from gameday_rehearsal.logstore.store import Entry, Found, Store, keep

STORE: web.AppKey[Store] = web.AppKey("store", Store)
TOKEN: web.AppKey[str | None] = web.AppKey("token")
TAILS: web.AppKey[set[web.WebSocketResponse]] = web.AppKey("tails", set)

_HOUR_NS = 3600 * 10**9
# Loki's defaults: limits_config.max_entries_limit_per_query, the API's own limit, tail's longest delay_for.
_MOST_ENTRIES = 5000
_DEFAULT_LIMIT = 100
_LONGEST_DELAY_S = 5
_LARGEST_PUSH = 16 * 1024 * 1024
# Entries that a tail may lag behind before some are dropped and reported to it; Loki's tailer holds 10 * 100 responses.
_TAIL_BACKLOG = 5000
_FRAME_ENTRIES = 500
_NOT_HERE = "(?:index|patterns|detected_|format_query|status|rules|delete|drilldown).*"
"""Further endpoints of Loki below /loki/api/v1, which this server lacks."""
_LABEL = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(store: Store, token: str | None = None) -> web.Application:
    """Return a store's server. If there is a bearer token, a push has to show it."""
    app = web.Application(client_max_size=_LARGEST_PUSH, middlewares=[_bad_requests])
    app[STORE] = store
    app[TOKEN] = token
    app[TAILS] = set()
    app.on_shutdown.append(_close_tails)
    api = "/loki/api/v1"
    app.router.add_get("/ready", _ready)
    app.router.add_post(f"{api}/push", _push)
    app.router.add_get(f"{api}/query", _query)
    app.router.add_get(f"{api}/query_range", _query_range)
    app.router.add_get(f"{api}/tail", _tail)
    app.router.add_get(f"{api}/labels", _labels)
    app.router.add_get(f"{api}/label/{{name}}/values", _label_values)
    app.router.add_get(f"{api}/series", _series)
    app.router.add_route("*", f"{api}/{{path:{_NOT_HERE}}}", _not_here)
    app.router.add_route("*", "/otlp/v1/logs", _no_otlp)
    return app


@web.middleware
async def _bad_requests(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a bad query as Loki does, with 400 and the error as plain text."""
    try:
        return await handler(request)
    except (LogQLError, ValueError) as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from None


async def _ready(_: web.Request) -> web.Response:
    return web.Response(text="ready\n")


async def _not_here(request: web.Request) -> web.Response:
    raise web.HTTPNotImplemented(text=f"the rehearsal's log store does not have {request.path}; a real Loki does\n")


async def _no_otlp(_: web.Request) -> web.Response:
    raise web.HTTPNotImplemented(
        text="the rehearsal's log store takes no OTLP; a real Loki does. Push JSON to /loki/api/v1/push, or run a real "
        "Loki\n"
    )


async def _push(request: web.Request) -> web.Response:
    token, shown = request.app[TOKEN], request.headers.get("Authorization", "")
    if token and not hmac.compare_digest(shown.encode(), f"Bearer {token}".encode()):
        raise web.HTTPUnauthorized(text="only the rehearsal's own nodes may push lines\n")
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(
            text="the rehearsal's log store takes application/json only, not snappy-compressed protobuf: "
            "push JSON, or run a real Loki\n"
        )
    streams = _read_push(await request.read())
    try:
        request.app[STORE].push(streams)
    except TooManyStreamsError:
        raise web.HTTPTooManyRequests(text="maximum active stream limit exceeded\n") from None
    except OSError as error:
        raise web.HTTPInternalServerError(text=f"cannot write the log store's file: {error.strerror}\n") from None
    return web.Response(status=204)


def _read_push(body: bytes) -> list[tuple[dict[str, str], list[Entry]]]:
    try:
        streams = json.loads(body)["streams"]
        return [(_stream_labels(stream["stream"]), [_entry(value) for value in stream["values"]]) for stream in streams]
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"couldn't parse push request: {error}") from None


def _stream_labels(labels: Any) -> dict[str, str]:
    if not isinstance(labels, dict) or not labels:
        raise ValueError("error at least one label pair is required per stream")
    for name, value in labels.items():
        if not _LABEL.fullmatch(name) or not isinstance(value, str):
            raise ValueError(f"invalid label {name[:64]!r}: names are like k8s_node_name and values are strings")
    return {name: value for name, value in labels.items() if value}


def _entry(value: Any) -> Entry:
    stamp, line, *rest = value
    metadata = rest[0] if rest else {}
    if not isinstance(stamp, str) or not stamp.isdecimal() or not isinstance(line, str):
        raise ValueError('an entry is ["<unix ns>", "<line>"], both strings')
    if not all(isinstance(found, str) for found in metadata.values()):
        raise ValueError("structured metadata values are strings")
    return Entry(times.nanoseconds(stamp.rjust(11, "0")), line, tuple(sorted(metadata.items())))


async def _query(request: web.Request) -> web.Response:
    parse(_required(request, "query"))
    raise ValueError(
        "log queries are not supported as an instant query type, please change your query to a range query type"
    )


async def _query_range(request: web.Request) -> web.Response:
    query = parse(_required(request, "query"))
    start, end = _range(request)
    direction = request.query.get("direction", "backward").lower()
    if direction not in ("forward", "backward"):
        raise ValueError(f"invalid direction '{direction[:32]}'")
    forward = direction == "forward"
    found = request.app[STORE].query(query, start, end, _limit(request), forward=forward)
    return web.json_response(
        {"status": "success", "data": {"resultType": "streams", "result": _as_streams(found), "stats": {}}}
    )


def _range(request: web.Request) -> tuple[int, int]:
    """Return the range, with start inclusive and end exclusive. The default is the last hour, as in Loki."""
    now = time.time_ns()
    end = times.nanoseconds(request.query["end"]) if "end" in request.query else now
    since = times.duration(request.query["since"]) if "since" in request.query else _HOUR_NS
    start = times.nanoseconds(request.query["start"]) if "start" in request.query else min(end, now) - since
    if start > end:
        raise ValueError("end timestamp must not be before or equal to start time")
    return start, end


def _limit(request: web.Request) -> int:
    text = request.query.get("limit", str(_DEFAULT_LIMIT))
    if not text.isdecimal() or int(text) == 0:
        raise ValueError("limit must be a positive value")
    if int(text) > _MOST_ENTRIES:
        raise ValueError(
            f"max entries limit per query exceeded, limit > max_entries_limit_per_query ({int(text)} > {_MOST_ENTRIES})"
        )
    return int(text)


def _required(request: web.Request, name: str) -> str:
    try:
        return request.query[name]
    except KeyError:
        raise ValueError(
            "parse error : syntax error: unexpected $end" if name == "query" else f"{name} is missing"
        ) from None


def _as_streams(found: Iterable[Found]) -> list[dict[str, Any]]:
    streams: dict[tuple[tuple[str, str], ...], list[list[str]]] = {}
    for ns, labels, line in found:
        streams.setdefault(labels, []).append([str(ns), line])
    return [{"stream": dict(labels), "values": values} for labels, values in streams.items()]


async def _labels(request: web.Request) -> web.Response:
    return _values(name for labels in request.app[STORE].streams() for name in labels)


async def _label_values(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    return _values(labels[name] for labels in request.app[STORE].streams() if name in labels)


def _values(found: Iterable[str]) -> web.Response:
    return web.json_response({"status": "success", "data": sorted(set(found))})


async def _series(request: web.Request) -> web.Response:
    selectors = [parse_selector(text) for text in request.query.getall("match[]", request.query.getall("match", []))]
    if not selectors:
        raise ValueError("0 matcher sets were provided, at least one is required")
    found = {tuple(sorted(labels.items())) for chosen in selectors for labels in request.app[STORE].streams(chosen)}
    return web.json_response({"status": "success", "data": [dict(labels) for labels in sorted(found)]})


class _Backlog:
    """The lines not yet sent to a tail; if it falls too far behind, the newest are dropped and counted."""

    def __init__(self, query: Query, history: list[Found]) -> None:
        self._query = query
        self._waiting = deque(history)
        self._dropped: list[Found] = []
        self._filled = asyncio.Event()
        if history:
            self._filled.set()

    def add(self, stream: dict[str, str], entries: list[Entry]) -> None:
        if not self._query.selects(stream):
            return
        for entry in entries:
            if found := keep(self._query, stream, entry):
                if len(self._waiting) < _TAIL_BACKLOG:
                    self._waiting.append(found)
                elif len(self._dropped) < _FRAME_ENTRIES:
                    self._dropped.append(found)
                self._filled.set()

    async def frame(self) -> dict[str, Any]:
        """Return the next frame, in Loki's form."""
        await self._filled.wait()
        batch = [self._waiting.popleft() for _ in range(min(_FRAME_ENTRIES, len(self._waiting)))]
        frame: dict[str, Any] = {"streams": _as_streams(batch)}
        if self._dropped:
            frame["dropped_entries"] = [
                {"labels": dict(lost.labels), "timestamp": str(lost.ns)} for lost in self._dropped
            ]
            self._dropped.clear()
        if not self._waiting:
            self._filled.clear()
        return frame


async def _tail(request: web.Request) -> web.WebSocketResponse:
    query = parse(_required(request, "query"))
    limit = _limit(request)
    start = times.nanoseconds(request.query["start"]) if "start" in request.query else time.time_ns() - _HOUR_NS
    delay_s = int(request.query.get("delay_for", "0"))
    if not 0 <= delay_s <= _LONGEST_DELAY_S:
        raise ValueError(f"delay_for can't be greater than {_LONGEST_DELAY_S}")
    socket = web.WebSocketResponse(heartbeat=20)
    await socket.prepare(request)
    store = request.app[STORE]
    request.app[TAILS].add(socket)
    # No await between reading the existing lines and listening for new ones, so that none is lost in between.
    history = store.query(query, start, 2**63 - 1, limit, forward=False)
    backlog = _Backlog(query, history[::-1])
    stop_listening = store.listen(backlog.add)
    sending = asyncio.create_task(_send(socket, backlog, delay_s))
    try:
        async for message in socket:
            if message.type == WSMsgType.ERROR:
                break
    finally:
        stop_listening()
        sending.cancel()
        request.app[TAILS].discard(socket)
    return socket


async def _send(socket: web.WebSocketResponse, backlog: _Backlog, delay_s: int) -> None:
    try:
        while True:
            frame = await backlog.frame()
            if delay_s:
                await asyncio.sleep(delay_s)
            await socket.send_json(frame)
    except ConnectionError:
        return  # the reader of the same socket ends the tail


async def _close_tails(app: web.Application) -> None:
    tails = app[TAILS]
    for socket in tuple(tails):
        await socket.close(code=1001, message=b"going away")
