"""LIST and WATCH: consistent pages, resuming from a version, bookmarks, and events shared between watchers."""

from __future__ import annotations

import asyncio
import base64
import random
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from aiohttp import web

from gameday.rehearsal.apiserver import errors
from gameday.rehearsal.apiserver.selectors import Predicate
from gameday.rehearsal.apiserver.store import EVENT_WINDOW, Collection, Event, Form, Store, Stored, watch_line

Json = dict[str, Any]

# Real servers send a bookmark about once a minute; sooner keeps resumed watches inside the window.
BOOKMARK_EVERY_S = 5.0
# --min-request-timeout of the real server: watches without timeoutSeconds end after 30 to 60 minutes.
_WATCH_S = 1800.0
# Snapshots kept for `continue`; each is a list of references.
_SNAPSHOTS = 64


class ListForm(Form, Protocol):
    """A form that can also write lists and bookmarks."""

    def many(self, items: list[Stored], meta: Json) -> bytes:
        """The JSON of a list."""

    def bookmark(self, meta: Json) -> bytes:
        """The object of a bookmark."""


@dataclass(frozen=True)
class Query:
    """What a LIST or WATCH asks for."""

    form: ListForm
    namespace: str = ""
    predicate: Predicate | None = None
    version: str = ""
    match: str = ""
    limit: int = 0
    token: str = ""
    timeout_s: float = 0
    bookmarks: bool = False
    initial_events: bool = False


def query_of(form: ListForm, namespace: str, predicate: Predicate | None, params: Mapping[str, str]) -> Query:
    """Read the query parameters. Raises ApiError 400 or 422."""
    match, version = params.get("resourceVersionMatch", ""), params.get("resourceVersion", "")
    watch, token = truth(params.get("watch")), params.get("continue", "")
    initial = truth(params.get("sendInitialEvents"))
    if match not in ("", "Exact", "NotOlderThan"):
        raise errors.bad_request(f"invalid resourceVersionMatch {match!r}")
    if match and not version and not watch:
        raise errors.bad_request("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if match == "Exact" and version == "0":
        raise errors.bad_request('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
    if version and not version.isdigit():
        raise errors.bad_request(f'invalid resource version: "{version}"')
    if token and version not in ("", "0"):
        raise errors.bad_request("specifying resource version is not allowed when using continue")
    if initial and match != "NotOlderThan":
        raise errors.bad_request("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    limit, timeout = _whole(params, "limit"), _whole(params, "timeoutSeconds")
    bookmarks = truth(params.get("allowWatchBookmarks"))
    return Query(form, namespace, predicate, version, match, limit, token, timeout, bookmarks, initial)


def truth(text: str | None) -> bool:
    """A boolean query parameter: present and not false."""
    return text is not None and text not in ("false", "0", "False")


def _whole(params: Mapping[str, str], name: str) -> int:
    text = params.get(name) or "0"
    if not text.isdigit():
        raise errors.bad_request(f"{name} must be a whole number, not {text!r}")
    return int(text)


class Lister:
    """Answers LISTs; remembers recent snapshots so that pages of one list agree with each other."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._snapshots: OrderedDict[tuple[str, str, int], list[Stored]] = OrderedDict()

    def answer(self, key: str, query: Query) -> bytes:
        """The encoded list. Raises ApiError 410 for versions that are gone, 504 for ones not reached yet."""
        if query.token:
            rv, start = _untoken(query.token)
            found = self._snapshots.get((key, query.namespace, rv))
            if found is None:
                raise errors.expired(
                    "The provided continue parameter is too old to display a consistent list result. "
                    "You can start a new list without the continue parameter."
                )
            return self._page(key, query, found, rv, start)
        rv = self._store.rv
        asked = int(query.version or 0)
        if asked > rv:
            raise _too_large(asked, rv)
        if query.match == "Exact" and asked < self._store[key].last_rv:
            raise errors.expired(f"The resourceVersion for the provided list is too old: {asked}")
        return self._page(key, query, list(self._store[key].all(query.namespace)), rv, 0)

    def _page(self, key: str, query: Query, found: list[Stored], rv: int, start: int) -> bytes:
        meta: Json = {"resourceVersion": str(rv)}
        if not query.limit:
            rest = found[start:] if start else found
            predicate = query.predicate
            return query.form.many([item for item in rest if predicate(item.obj)] if predicate else rest, meta)
        items: list[Stored] = []
        position = start
        while position < len(found) and len(items) < query.limit:
            if query.predicate is None or query.predicate(found[position].obj):
                items.append(found[position])
            position += 1
        if position < len(found):
            meta["continue"] = _token(rv, position)
            if query.predicate is None:
                meta["remainingItemCount"] = len(found) - position
            self._remember((key, query.namespace, rv), found)
        return query.form.many(items, meta)

    def _remember(self, snapshot: tuple[str, str, int], found: list[Stored]) -> None:
        self._snapshots[snapshot] = found
        self._snapshots.move_to_end(snapshot)
        while len(self._snapshots) > _SNAPSHOTS:
            self._snapshots.popitem(last=False)


def _token(rv: int, position: int) -> str:
    return base64.urlsafe_b64encode(orjson.dumps({"v": "gameday/v1", "rv": rv, "start": position})).decode()


def _untoken(token: str) -> tuple[int, int]:
    try:
        decoded = orjson.loads(base64.urlsafe_b64decode(token))
        return int(decoded["rv"]), int(decoded["start"])
    except (ValueError, KeyError, TypeError) as error:
        raise errors.bad_request("continue key is not valid") from error


def _too_large(asked: int, current: int) -> errors.ApiError:
    cause = errors.cause("ResourceVersionTooLarge", "", "Too large resource version")
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return errors.ApiError(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1}, 1)


class Watcher:
    """One watch: collects the lines it has to send; the connection's task writes them."""

    def __init__(self, collection: Collection, query: Query) -> None:
        self.query = query
        self.pending: list[bytes] = []
        self.wake = asyncio.Event()
        self.closed = False
        self._collection = collection

    def offer(self, event: Event) -> None:
        """Take one change in, if it concerns this watch."""
        if self.query.namespace and event.new.namespace != self.query.namespace:
            return
        line = self._line(event)
        if line is None:
            return
        if len(self.pending) >= EVENT_WINDOW:
            self.close()  # too slow a reader: it has to resume, as on the real server
            return
        self.pending.append(line)
        self.wake.set()

    def _line(self, event: Event) -> bytes | None:
        predicate, form = self.query.predicate, self.query.form
        if predicate is None:
            return event.encoded(form)
        before = event.old is not None and predicate(event.old.obj)
        after = event.type != "DELETED" and predicate(event.new.obj)
        if event.type == "DELETED":
            return event.encoded(form) if before else None
        if before and after:
            return event.encoded(form) if event.type == "MODIFIED" else None
        if after:
            return event.encoded(form) if event.type == "ADDED" else watch_line("ADDED", form.one(event.new))
        if before and event.old is not None:
            meta = {**event.old.obj["metadata"], "resourceVersion": str(event.rv)}
            return watch_line("DELETED", form.one(Stored({**event.old.obj, "metadata": meta}, event.rv)))
        return None

    def begin(self, rv_now: int) -> None:
        """Queue what the watch starts with and follow from here."""
        query, collection = self.query, self._collection
        asked = int(query.version or 0)
        if query.initial_events or asked == 0:
            for stored in collection.all(query.namespace):
                if query.predicate is None or query.predicate(stored.obj):
                    self.pending.append(watch_line("ADDED", query.form.one(stored)))
            if query.initial_events:
                self.bookmark(rv_now, {"k8s.io/initial-events-end": "true"})
        elif asked < collection.window_starts_after:
            oldest = collection.window_starts_after
            error = errors.expired(f"too old resource version: {asked} ({oldest})")
            self.pending.append(watch_line("ERROR", orjson.dumps(error.body())))
            self.close()
            return
        else:
            missed: list[Event] = []
            for event in reversed(collection.events):
                if event.rv <= asked:
                    break
                missed.append(event)
            for event in reversed(missed):
                self.offer(event)
        collection.listeners.add(self.offer)

    def bookmark(self, rv: int, annotations: Json | None = None) -> None:
        """Queue a bookmark at a version up to which everything is queued."""
        meta: Json = {"resourceVersion": str(rv), "creationTimestamp": None}
        if annotations:
            meta["annotations"] = annotations
        self.pending.append(watch_line("BOOKMARK", self.query.form.bookmark(meta)))

    def close(self) -> None:
        """End the stream after what is queued."""
        self.closed = True
        self._collection.listeners.discard(self.offer)
        self.wake.set()


class Watches:
    """Serves watches and ends them all when the server stops."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: set[Watcher] = set()

    @property
    def count(self) -> int:
        """Open watches."""
        return len(self._open)

    def close_all(self) -> None:
        """End every watch."""
        for watcher in tuple(self._open):
            watcher.close()

    async def serve(self, request: web.BaseRequest, key: str, query: Query) -> web.StreamResponse:
        """Stream a watch until its time is over, the client leaves or the server stops."""
        watcher = Watcher(self._store[key], query)
        watcher.begin(self._store.rv)
        self._open.add(watcher)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        try:
            await response.prepare(request)
            await self._pump(response, watcher)
            await response.write_eof()
        except ConnectionError:
            pass  # the client left
        finally:
            watcher.close()
            self._open.discard(watcher)
        return response

    async def _pump(self, response: web.StreamResponse, watcher: Watcher) -> None:
        loop = asyncio.get_running_loop()
        seconds = watcher.query.timeout_s or _WATCH_S * (1 + random.random())  # noqa: S311
        deadline = loop.time() + seconds
        next_bookmark = loop.time() + BOOKMARK_EVERY_S
        told = 0
        while True:
            if watcher.query.bookmarks and loop.time() >= next_bookmark:
                next_bookmark = loop.time() + BOOKMARK_EVERY_S
                if told != self._store.rv:
                    told = self._store.rv
                    watcher.bookmark(told)
            if watcher.pending:
                lines, watcher.pending = watcher.pending, []
                await response.write(b"".join(lines))
                continue
            if watcher.closed or loop.time() >= deadline:
                return
            watcher.wake.clear()
            alarm = loop.call_at(
                min(deadline, next_bookmark if watcher.query.bookmarks else deadline), watcher.wake.set
            )
            try:
                await watcher.wake.wait()
            finally:
                alarm.cancel()
