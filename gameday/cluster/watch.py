"""Follow objects by watch: one stream per question, and waits that wake when something changes."""

from __future__ import annotations

import contextlib
import functools
import logging
import random
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from kubernetes.client.exceptions import ApiException
from kubernetes.informer import ADDED, DELETED, MODIFIED, SharedInformer

# SharedInformer logs a traceback for every refused connection; what matters of it reaches the run as a Problem.
logging.getLogger("kubernetes.informer.informer").setLevel(logging.CRITICAL)
# An API server that restarts is back within seconds; until then each attempt waits this long, jittered.
_BACK_OFF_S = 0.5


class Follower:
    """The newest known state of the objects one list call selects.

    `changed` is notified at every event; `on_change(type, object)` is called in
    the watch's own thread before that.
    """

    def __init__(
        self, list_call: Callable[..., Any], on_change: Callable[[str, Any], None] | None = None, **selection: Any
    ) -> None:
        self.changed = threading.Condition()
        self._synced = threading.Event()
        self._on_change = on_change
        self._stopping = threading.Event()
        self._answering = threading.Lock()
        self._answer: Any = None
        self._informer = SharedInformer(self._paced(list_call), **selection)
        for kind in (ADDED, MODIFIED, DELETED):
            self._informer.add_event_handler(kind, functools.partial(self._event, kind))

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

    def wait_synced(self, timeout_s: float) -> bool:
        """Whether the first list has been read within `timeout_s` seconds."""
        return self._synced.wait(timeout_s)

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

    def _paced(self, list_call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, with a pause after a failure (SharedInformer has none) and bookmarks asked for.

        SharedInformer watches only after its first list is in its cache, so the
        first watching call is the moment it is synced.
        """

        @functools.wraps(list_call)
        def call(*arguments: Any, **options: Any) -> Any:
            if self._stopping.is_set():
                raise ApiException(reason="the watch is being stopped")
            if options.get("watch"):
                options.setdefault("allow_watch_bookmarks", True)
                self._synced.set()
            try:
                answer = list_call(*arguments, **options)
                if options.get("watch") and not 200 <= answer.status < 300:
                    # SharedInformer would ask again at once, and it understands only 410. A server restored from a
                    # backup answers 504 for ever to a version it has not reached: reading anew is the way out.
                    status = 410 if answer.status in (400, 500, 504) else answer.status
                    raise ApiException(status=status, reason="the watch cannot be resumed")
                if options.get("watch"):
                    self._hold(answer)
                return answer
            except Exception:
                self._stopping.wait(_BACK_OFF_S * (0.5 + random.random()))  # noqa: S311 - jitter
                raise

        return call

    def _hold(self, answer: Any) -> None:
        with self._answering:
            if self._stopping.is_set():
                answer.close()
                raise ApiException(reason="the watch is being stopped")
            self._answer = answer


def _cut(answer: Any) -> None:
    """Wake whoever reads this answer, with its end."""
    sock = getattr(getattr(answer, "connection", None), "sock", None)
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
