"""Follow objects by watch: one stream per question, and waits that wake when something changes."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import random
import re
import socket
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace, TracebackType
from typing import Any, Self

from kubernetes.client.exceptions import ApiException
from kubernetes.informer import ADDED, BOOKMARK, DELETED, MODIFIED, SharedInformer

from gameday.cluster.kubernetes import hint_of, reason_of
from gameday.errors import AdapterError, WatchRefusedError

# SharedInformer logs a traceback for every refused connection; what matters of it is what `Follower.trouble` says.
logging.getLogger("kubernetes.informer.informer").setLevel(logging.CRITICAL)
# An API server that restarts is back within seconds; until then each attempt waits this long, jittered.
_BACK_OFF_S = 0.5
# What asking again does not mend; the transport has waited by then for a server that only just starts.
_REFUSALS = (401, 403, 404)
# A server that is older than streamed lists, or has them switched off, calls the parameters invalid (422, or 400).
_DOES_NOT_STREAM = (400, 422)
# What SharedInformer understands as an order to list again.
_READ_ANEW = 410
SYNCED_WITHIN_S = 10.0
"""Within this the state at the beginning has been read; a server that says nothing for longer does not answer."""
_END_OF_STATE = "k8s.io/initial-events-end"
_LIST_CALL = re.compile(r"list_(?:namespaced_)?(?P<kind>[a-z_]+?)(?:_for_all_namespaces)?$")


class Follower:
    """The newest known state of the objects one list call selects.

    The state comes in the watch itself where call and server can stream it
    (sendInitialEvents, Kubernetes 1.34 and later), else by a list before it.
    `changed` is notified at every event; `on_change(type, object)` is called in
    the watch's own thread before that.
    """

    def __init__(
        self, list_call: Callable[..., Any], on_change: Callable[[str, Any], None] | None = None, **selection: Any
    ) -> None:
        self.changed = threading.Condition()
        self._what = _told(list_call, selection)
        self._synced = threading.Event()
        self._decided = threading.Event()
        self._refusal: WatchRefusedError | None = None
        self._broken_since: float | None = time.monotonic()
        self._streams = "send_initial_events" in inspect.signature(list_call).parameters
        self._listed = False
        self._on_change = on_change
        self._stopping = threading.Event()
        self._answering = threading.Lock()
        self._answer: Any = None
        self._informer = SharedInformer(self._paced(list_call), **selection)
        for kind in (ADDED, MODIFIED, DELETED):
            self._informer.add_event_handler(kind, functools.partial(self._event, kind))
        self._informer.add_event_handler(BOOKMARK, self._bookmark)

    def __enter__(self) -> Self:
        self._informer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the watch and its thread.

        SharedInformer's own stop overlooks a watch whose answer it has not been
        given yet, and would then wait for the server to close it.
        """
        with self._answering:
            self._stopping.set()
            if self._answer is not None:
                _cut(self._answer)
        self._informer.stop()

    def wait_synced(self, timeout_s: float = SYNCED_WITHIN_S) -> bool:
        """Whether the state at the beginning has been read within `timeout_s` seconds; a refusal ends the wait."""
        self._decided.wait(timeout_s)
        return self._synced.is_set()

    def require_synced(self, timeout_s: float = SYNCED_WITHIN_S) -> None:
        """Raise WatchRefusedError as soon as the server refuses, AdapterError where it says nothing for so long."""
        if self.wait_synced(timeout_s):
            return
        if self._refusal is not None:
            raise self._refusal
        raise AdapterError("the API server", f"{self._what}: no answer within {timeout_s:g} s")

    def trouble(self, for_s: float = 0.0) -> str:
        """Why what is known may be old: the watch has been down for more than `for_s` seconds; empty where it is up."""
        since = self._broken_since
        if since is None or (down := time.monotonic() - since) < for_s:
            return ""
        return str(self._refusal) if self._refusal else f"{self._what}: down for {down:.0f} s"

    def objects(self) -> list[Any]:
        found: list[Any] = self._informer.cache.list()
        return found

    def named(self, name: str) -> Any | None:
        return next((item for item in self.objects() if item.metadata.name == name), None)

    def _event(self, kind: str, item: Any) -> None:
        try:
            if self._on_change:
                self._on_change(kind, item)
        finally:
            with self.changed:
                self.changed.notify_all()

    def _bookmark(self, item: Any) -> None:
        annotations = item.get("metadata", {}).get("annotations") or {} if isinstance(item, dict) else {}
        if annotations.get(_END_OF_STATE) == "true":
            self._is_synced()

    def _is_synced(self) -> None:
        self._synced.set()
        self._decided.set()

    def _paced(self, list_call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, with a pause after a failure (SharedInformer has none) and bookmarks asked for.

        SharedInformer lists before it watches. Its first list is answered with
        nothing, and its first watch then asks for the state as events; only
        where that does not work, or the state has to be read anew, is there a
        list in earnest, which is in its cache before the next watch begins.
        """

        @functools.wraps(list_call)
        def call(*arguments: Any, **options: Any) -> Any:
            if self._stopping.is_set():
                raise ApiException(reason="the watch is being stopped")
            try:
                if options.get("watch"):
                    return self._watch(list_call, arguments, options)
                if self._streams and not self._synced.is_set():
                    return SimpleNamespace(items=[], metadata=None)
                answer = list_call(*arguments, **options)
                self._listed = True
                return answer
            except Exception as error:
                if not self._failed(error):
                    self._stopping.wait(_BACK_OFF_S * (0.5 + random.random()))  # noqa: S311 - jitter
                raise

        return call

    def _watch(self, list_call: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Open the watch; the state comes with it as long as it is not known. Raises ApiException."""
        streaming = False
        if self._listed:
            self._is_synced()
        elif not self._synced.is_set():
            if not self._streams:
                # The events of a state are in no order, so that half of one cannot be gone on from.
                raise ApiException(status=_READ_ANEW, reason="the state broke off half way")
            self._streams, streaming = False, True
            options = {**options, "send_initial_events": True, "resource_version_match": "NotOlderThan"}
            options.pop("resource_version", None)
        if self._broken_since is None:
            self._broken_since = time.monotonic()
        answer = list_call(*arguments, **{"allow_watch_bookmarks": True, **options})
        if not 200 <= answer.status < 300:
            raise _unusable(answer, streaming=streaming)
        self._hold(answer)
        self._broken_since = self._refusal = None
        return answer

    def _failed(self, error: Exception) -> bool:
        """Keep what is wrong; whether another way is open that need not be waited for."""
        if self._broken_since is None:
            self._broken_since = time.monotonic()
        if isinstance(error, ApiException) and error.status in _REFUSALS:
            why = f"{self._what}: {reason_of(error)}"
            self._refusal = WatchRefusedError("the API server", why, hint_of(error), status=error.status)
            self._decided.set()
        return isinstance(error, ApiException) and error.status == _READ_ANEW and not self._listed

    def _hold(self, answer: Any) -> None:
        with self._answering:
            if self._stopping.is_set():
                answer.close()
                raise ApiException(reason="the watch is being stopped")
            self._answer = answer


def _told(list_call: Callable[..., Any], selection: dict[str, Any]) -> str:
    """What is asked, for people: 'watch events in namespace default'."""
    found = _LIST_CALL.match(getattr(list_call, "__name__", ""))
    where = f" in namespace {selection['namespace']}" if "namespace" in selection else ""
    return f"watch {found['kind'].replace('_', ' ')}s{where}" if found else f"watch{where}"


def _unusable(answer: Any, *, streaming: bool) -> ApiException:
    """The error that makes SharedInformer do what helps after this answer.

    It would ask again at once, and it understands only 410. A server restored
    from a backup answers 504 for ever to a version it has not reached: reading
    anew is the way out.
    """
    anew = answer.status in (400, 500, 504) or (streaming and answer.status in _DOES_NOT_STREAM)
    body = answer.data.decode("utf-8", "replace")
    status = _READ_ANEW if anew else answer.status
    return ApiException(status=status, reason=answer.reason or "the watch cannot be resumed", body=body)


def _cut(answer: Any) -> None:
    """Wake whoever reads this answer, with its end."""
    sock = getattr(getattr(answer, "connection", None), "sock", None)
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
