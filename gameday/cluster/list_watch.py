"""The list-watch protocol of the API server: the state that one question selects, then its changes, resumable.

It reads the official client's raw responses: the cost counter sees every byte, and another thread can end a read. kr8s
(asyncio behind a portal; restarts an expired watch at the same version), lightkube (a third HTTP stack; its reads
cannot be ended) and the client's own SharedInformer (no bookmarks, no pages, no pause after a failed watch) cannot
stream lists, and each would need more code around it than this module has.
"""

from __future__ import annotations

import inspect
import json
import random
import socket
import threading
import typing
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from kubernetes.client.exceptions import ApiException

STATE, ADDED, MODIFIED, DELETED = "STATE", "ADDED", "MODIFIED", "DELETED"

# client-go's reflectors also ask for 5 to 10 minutes, so that clients that connected together do not come back
# together.
_WATCH_S = (300, 600)
# To connect, TLS included, and to wait for the next byte. The API server sends a bookmark every minute
# (defaultBookmarkFrequency in its cacher.go; measured on 1.37.1: the first after two), so a stream that is silent for
# longer is dead.
_TIMEOUTS_S = (5.0, 180.0)
_PAGE = 500
# A server without streamed lists rejects the parameters as invalid.
_DOES_NOT_STREAM = (400, 410, 422)
# The version is too old, or one that a server restored from a backup has not reached (504, or 500 by etcd itself).
_READ_ANEW = (400, 410, 500, 504)
_END_OF_STATE = "k8s.io/initial-events-end"

Key = tuple[str, str]
"""Namespace and name."""
_WHOLE: Key = ("", "")
_Json = dict[str, Any]


class ListWatch:
    """A question to the API server, and how far its answer has been read. For one thread, except `stop`."""

    def __init__(
        self, list_call: Callable[..., Any], selection: dict[str, Any], decode: Callable[[_Json], Any] | None
    ) -> None:
        """Prepare the question; the arguments are those of `gameday.cluster.watch.Follower`."""
        self._send = _without_validation(list_call)
        self._selection = selection
        self._decode = decode or _model_of(list_call).from_dict
        self._version = ""
        """The resourceVersion to continue from; empty if the state has to be read."""
        self._streams = True
        """False once the server failed to stream a state to its end: from then on it is listed."""
        self._lock = threading.Lock()
        self._answer: Any = None
        self._stopped = False

    def stop(self) -> None:
        """End `changes`, from any thread."""
        with self._lock:
            self._stopped = True
            # close() would wait for the read that has to end.
            if sock := getattr(getattr(self._answer, "connection", None), "sock", None):
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def changes(self) -> Generator[tuple[str, Key, Any]]:
        """Yield type, key and object of everything that one connection brings, until it ends; a later call continues.

        The first is a STATE, once the watch is up: its object is the whole state by key, or None if the connection
        continues the one before it. ADDED, MODIFIED and DELETED follow.

        Raises:
            ApiException: The server refuses, or ends the watch with an error.
            urllib3.exceptions.HTTPError: The connection failed.
        """
        try:
            yield from self._streamed_or_listed()
        except ApiException as error:
            if error.status in _READ_ANEW:
                self._version = ""
            raise

    def _streamed_or_listed(self) -> Generator[tuple[str, Key, Any]]:
        try:
            yield from self._connection()
        except ApiException as error:
            if self._version or not self._streams or error.status not in _DOES_NOT_STREAM:
                raise
        if self._version or self._stopped:
            return
        # Half a state cannot be continued, because its events come in no order.
        self._streams = False
        yield from self._connection()

    def _connection(self) -> Generator[tuple[str, Key, Any]]:
        version, state = (self._version, None) if self._version or self._streams else self._list()
        answer = self._open(version)
        try:
            with self._lock:
                self._answer = answer
            if self._stopped:
                return
            if version:
                self._version = version
                yield STATE, _WHOLE, state
            initial: dict[Key, Any] | None = None if version else {}
            for kind, item in _events(answer):
                if kind == "BOOKMARK":
                    if initial is not None and _ends_state(item):
                        yield STATE, _WHOLE, initial
                        initial = None
                elif initial is None:
                    yield kind, _key(item), self._decode(item)
                elif kind == DELETED:
                    initial.pop(_key(item), None)
                else:
                    initial[_key(item)] = self._decode(item)
                if initial is None:
                    self._version = item["metadata"]["resourceVersion"]
        finally:
            with self._lock:
                self._answer = None
            answer.close()

    def _list(self) -> tuple[str, dict[Key, Any]]:
        state: dict[Key, Any] = {}
        more: dict[str, str] = {}
        while True:
            page = json.loads(self._ask(limit=_PAGE, **more).data)
            state |= {_key(item): self._decode(item) for item in page.get("items") or []}
            if not page["metadata"].get("continue"):
                return page["metadata"]["resourceVersion"], state
            more = {"_continue": page["metadata"]["continue"]}

    def _open(self, version: str) -> Any:
        begin = {"send_initial_events": True, "resource_version_match": "NotOlderThan"}
        return self._ask(
            watch=True,
            allow_watch_bookmarks=True,
            timeout_seconds=random.randint(*_WATCH_S),  # noqa: S311 - jitter
            _request_timeout=_TIMEOUTS_S,
            **({"resource_version": version} if version else begin),
        )

    def _ask(self, **options: Any) -> Any:
        return self._send(**self._selection, **options, _preload_content=False)


def _without_validation(list_call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a list method of the client without the check of its arguments; any other function unchanged.

    The check (pydantic's `validate_call`) leaves its Rust frames below the request. If a watch is still asking in its
    own thread when the process ends, CPython before 3.14 unwinds that thread, and Rust then aborts the process.
    """
    if inspect.ismethod(list_call) and (unchecked := getattr(list_call, "raw_function", None)):
        return partial(unchecked, list_call.__self__)
    return list_call


def _model_of(list_call: Callable[..., Any]) -> Any:
    """Return the client's model of the items that one of its list methods returns."""
    listed = inspect.signature(list_call).return_annotation
    return typing.get_args(listed.model_fields["items"].annotation)[0]


def _events(answer: Any) -> Iterator[tuple[str, _Json]]:
    """Yield type and object of a watch's events as they come. Raises ApiException for an ERROR event."""
    rest = b""
    for chunk in answer.stream():
        *lines, rest = (rest + chunk).split(b"\n")
        for event in map(json.loads, filter(None, lines)):
            if event["type"] == "ERROR":
                raise ApiException(status=event["object"].get("code"), reason=event["object"].get("message"))
            yield event["type"], event["object"]


def _key(item: _Json) -> Key:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _ends_state(bookmark: _Json) -> bool:
    return (bookmark["metadata"].get("annotations") or {}).get(_END_OF_STATE) == "true"
