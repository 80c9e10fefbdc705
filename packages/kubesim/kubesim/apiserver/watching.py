"""LIST and WATCH: consistent pages, resuming from a version, bookmarks, and events shared between watchers."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

import orjson
from aiohttp import web

from kubesim.apiserver import errors
from kubesim.apiserver.request_selectors import Predicate, pinned_name
from kubesim.apiserver.store import EVENT_WINDOW, Collection, Event, Form, Store, Stored, watch_line

Json = dict[str, Any]

# Real servers send a bookmark about once a minute; more often keeps resumed watches inside the window.
BOOKMARK_EVERY_S = 5.0
# --min-request-timeout of the real server: watches without timeoutSeconds end after 30 to 60 minutes.
_WATCH_S = 1800.0
# The version in a token that continues with the list as it is now.
_LATEST = -1
_LARGEST = (1 << 63) - 1


class ListForm(Form, Protocol):
    """A form that can also write lists and bookmarks."""

    def after_first(self) -> Self:
        """Return the form of a watch's events after the first one."""

    def encode_list(self, items: list[Stored], meta: Json) -> bytes:
        """Return a list as JSON."""

    def bookmark(self, meta: Json) -> bytes:
        """Return a bookmark's object as JSON."""


@dataclass(frozen=True)
class Query:
    """The query of a LIST or WATCH.

    `initial` is sendInitialEvents: asked for (True), refused (False) or not mentioned (None).
    """

    form: ListForm
    namespace: str = ""
    predicate: Predicate | None = None
    version: str = ""
    match: str = ""
    limit: int = 0
    token: str = ""
    timeout_s: float = 0
    bookmarks: bool = False
    initial: bool | None = None
    name: str = ""
    """The only name that the field selector allows, else empty."""


def list_query(
    form: ListForm, namespace: str, predicate: Predicate | None, params: Mapping[str, str], *, watch: bool
) -> Query:
    """Read the query parameters. Raises StatusError 400, 422 or, like the real server for malformed versions, 500."""
    match, version, token = (params.get(name, "") for name in ("resourceVersionMatch", "resourceVersion", "continue"))
    limit, timeout = _whole(params, "limit"), _whole(params, "timeoutSeconds")
    initial = is_true(params["sendInitialEvents"]) if "sendInitialEvents" in params else None
    causes = _watch_causes(match, token, initial) if watch else _list_causes(match, version, token, initial)
    if causes:
        raise errors.invalid_request("meta.k8s.io", "ListOptions", causes)
    try:
        parse_version(version)
    except errors.StatusError as error:
        if watch:
            raise
        raise errors.bad_request(f"invalid resource version: {error.message}") from None
    if token and version not in ("", "0") and not watch:
        raise errors.bad_request("specifying resource version is not allowed when using continue")
    bookmarks, name = is_true(params.get("allowWatchBookmarks")), pinned_name(params.get("fieldSelector", ""))
    return Query(form, namespace, predicate, version, match, limit, token, timeout, bookmarks, initial, name)


def _forbidden(field: str, why: str) -> Json:
    return errors.cause("FieldValueForbidden", field, f"Forbidden: {why}")


def _list_causes(match: str, version: str, token: str, initial: bool | None) -> list[Json]:
    field = "resourceVersionMatch"
    causes: list[Json] = []
    if match:
        if not version:
            causes.append(_forbidden(field, f"{field} is forbidden unless resourceVersion is provided"))
        if token:
            causes.append(_forbidden(field, f"{field} is forbidden when continue is provided"))
        if match not in ("Exact", "NotOlderThan"):
            causes.append(errors.unsupported(field, match, ("Exact", "NotOlderThan", "")))
        if match == "Exact" and version == "0":
            causes.append(_forbidden(field, f'{field} "exact" is forbidden for resourceVersion "0"'))
    if initial is not None:
        causes.append(_forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return causes


def _watch_causes(match: str, token: str, initial: bool | None) -> list[Json]:
    field = "resourceVersionMatch"
    causes: list[Json] = []
    if initial is not None and match != "NotOlderThan":
        causes.append(_forbidden(field, f"sendInitialEvents requires setting {field} to NotOlderThan"))
    if match:
        if initial is None:
            causes.append(_forbidden(field, f"{field} is forbidden for watch unless sendInitialEvents is provided"))
        if match != "NotOlderThan":
            causes.append(errors.unsupported(field, match, ("NotOlderThan",)))
        if token:
            causes.append(_forbidden(field, f"{field} is forbidden when continue is provided"))
    return causes


def is_true(text: str | None) -> bool:
    """Return True for a boolean query parameter that is present and not false."""
    return text is not None and text.lower() not in ("false", "0")


def parse_version(text: str) -> int:
    """Return a resourceVersion as a number; 0 if empty. Raises StatusError 500, as the real server does."""
    if text.isdecimal() or not text:
        return int(text or 0)
    why = f'strconv.ParseUint: parsing "{text}": invalid syntax'
    raise errors.StatusError(500, "", f'resourceVersion: Invalid value: "{text}": {why}')


def _whole(params: Mapping[str, str], name: str) -> int:
    text = params.get(name) or "0"
    try:
        value = int(text)
    except ValueError:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None
    if abs(value) > _LARGEST:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return value


class Lister:
    """Answers LISTs; past states come from the events since then, so that the pages of one list agree."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def answer(self, key: str, query: Query) -> bytes:
        """Return the encoded list. Raises StatusError 410 for a version that is gone, 504 for one not reached yet."""
        collection, asked = self._store[key], parse_version(query.version)
        if query.token:
            version, start = _untoken(query.token)
            if version == _LATEST:
                return self._page(query, list(collection.all(query.namespace)), self._store.rv, start)
            if version < collection.window_starts_after:
                raise _expired_token(start)
            return self._page(query, _as_of(collection, version, query.namespace), version, start)
        if asked > self._store.rv:
            raise version_too_large(asked, self._store.rv)
        exactly = query.match == "Exact" or (query.limit > 0 and asked > 0 and not query.match)
        if not exactly:
            return self._page(query, list(collection.all(query.namespace)), self._store.rv)
        if asked < collection.window_starts_after:
            raise errors.expired("The resourceVersion for the provided list is too old.")
        return self._page(query, _as_of(collection, asked, query.namespace), asked)

    def _page(self, query: Query, found: list[Stored], version: int, start: str = "") -> bytes:
        meta: Json = {"resourceVersion": str(version)}
        if query.name:
            found = [item for item in found if item.name == query.name]
        if start:
            found = [item for item in found if _key(item, query.namespace) >= start]
        # A list that is served from memory is not cut into pages.
        limit = max(query.limit, 0) if query.version != "0" or query.token else 0
        items: list[Stored] = []
        for position, item in enumerate(found):
            if limit and len(items) >= limit:
                meta["continue"] = continue_after(version, items[-1], query.namespace)
                if query.predicate is None:
                    meta["remainingItemCount"] = len(found) - position
                break
            if query.predicate is None or query.predicate(item.obj):
                items.append(item)
        return query.form.encode_list(items, meta)


def _as_of(collection: Collection, version: int, namespace: str) -> list[Stored]:
    """Return the objects as they were at a version inside the window of events."""
    found = {(item.namespace, item.name): item for item in collection.all(namespace)}
    for event in reversed(collection.events):
        if event.rv <= version:
            break
        key = (event.new.namespace, event.new.name)
        if event.old is not None and namespace in ("", event.new.namespace):
            found[key] = event.old
        else:
            found.pop(key, None)
    return sorted(found.values(), key=lambda item: _key(item, namespace))


def _key(item: Stored, namespace: str) -> str:
    """Return an object's sort key in a list: as in etcd, the path below what is listed."""
    return item.name if namespace or not item.namespace else f"{item.namespace}/{item.name}"


def _expired_token(start: str) -> errors.StatusError:
    """Return 410 with a token that continues from there with the list as it is now."""
    error = errors.expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list "
        "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
        "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
        "modified, or deleted between the time the first chunk was returned and now may show up in the list."
    )
    error.metadata = {"continue": _token(_LATEST, start)}
    return error


def continue_after(version: int, item: Stored, namespace: str) -> str:
    """Return the token of the page that follows an item of a list as it was at a version."""
    return _token(version, f"{_key(item, namespace)}\0")


def _token(version: int, start: str) -> str:
    """Return a token in the real server's form: the list's version and the first key still to come."""
    raw = orjson.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": start})
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _untoken(token: str) -> tuple[int, str]:
    try:
        decoded = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(decoded["rv"]), str(decoded["start"])
    except (ValueError, TypeError, KeyError):
        raise errors.bad_request("invalid continue token: list again without it") from None


def version_too_large(asked: int, current: int) -> errors.StatusError:
    """Return 504 for a version that is still to come."""
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return errors.StatusError(504, "Timeout", message, {"causes": causes, "retryAfterSeconds": 1}, 1)


class Watcher:
    """A watch: it collects the lines to send, and the connection's task writes them."""

    def __init__(self, collection: Collection, query: Query) -> None:
        self.query = query
        self.pending: list[bytes] = []
        self.wake = asyncio.Event()
        self.closed = False
        self._collection = collection
        self._form = query.form
        self._after = parse_version(query.version)

    def offer(self, event: Event) -> None:
        """Queue a change if it concerns this watch."""
        if event.rv <= self._after or self.query.namespace not in ("", event.new.namespace):
            return
        line = self._line(event)
        if line is None:
            return
        if len(self.pending) >= EVENT_WINDOW:
            self.close()  # too slow a reader: it has to resume, as on the real server
            return
        self._send(line)
        self.wake.set()

    def _send(self, line: bytes) -> None:
        self.pending.append(line)
        self._form = self._form.after_first()

    def _line(self, event: Event) -> bytes | None:
        predicate, form = self.query.predicate, self._form
        if predicate is None:
            return event.encoded(form)
        before = event.old is not None and predicate(event.old.obj)
        after = event.type != "DELETED" and predicate(event.new.obj)
        if event.type == "DELETED":
            return event.encoded(form) if before else None
        if before and after:
            return event.encoded(form) if event.type == "MODIFIED" else None
        if after:
            return event.encoded(form) if event.type == "ADDED" else watch_line("ADDED", form.encode(event.new))
        if before and event.old is not None:
            meta = {**event.old.obj["metadata"], "resourceVersion": str(event.rv)}
            return watch_line("DELETED", form.encode(Stored({**event.old.obj, "metadata": meta}, event.rv)))
        return None

    def begin(self, rv_now: int) -> None:
        """Queue what the watch starts with, and follow changes from here."""
        asked, initial = self._after, self.query.initial
        if initial and asked > rv_now:
            self._fail(version_too_large(asked, rv_now))
            return
        if initial or (asked == 0 and initial is None):
            self._queue_state(rv_now)
        elif 0 < asked < self._collection.window_starts_after:
            oldest = self._collection.window_starts_after
            self._fail(errors.expired(f"too old resource version: {asked} ({oldest})"))
            return
        elif asked:
            self._queue_missed()
        self._collection.listeners.add(self.offer)

    def _queue_state(self, rv_now: int) -> None:
        """Queue all present objects as if they were just created."""
        for stored in self._collection.all(self.query.namespace):
            if self.query.predicate is None or self.query.predicate(stored.obj):
                self._send(watch_line("ADDED", self._form.encode(stored)))
        if self.query.initial and self.query.bookmarks:
            self.bookmark(rv_now, {"k8s.io/initial-events-end": "true"})

    def _queue_missed(self) -> None:
        missed: list[Event] = []
        for event in reversed(self._collection.events):
            if event.rv <= self._after:
                break
            missed.append(event)
        for event in reversed(missed):
            self.offer(event)

    def _fail(self, error: errors.StatusError) -> None:
        self.pending.append(watch_line("ERROR", orjson.dumps(error.body())))
        self.close()

    def bookmark(self, rv: int, annotations: Json | None = None) -> None:
        """Queue a bookmark at a version; everything up to it must be queued."""
        meta: Json = {"resourceVersion": str(rv)}
        if annotations:
            meta["annotations"] = annotations
        self._send(watch_line("BOOKMARK", self._form.bookmark(meta)))

    def close(self) -> None:
        """End the stream after the queued lines."""
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
        """The number of open watches."""
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
        response = web.StreamResponse(
            headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
        )
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
        last_bookmark = 0
        while True:
            if watcher.query.bookmarks and loop.time() >= next_bookmark:
                next_bookmark = loop.time() + BOOKMARK_EVERY_S
                if last_bookmark != self._store.rv:
                    last_bookmark = self._store.rv
                    watcher.bookmark(last_bookmark)
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
