"""Follow objects by watch: one stream per question, and waits that wake when something changes."""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Callable
from contextlib import closing
from types import TracebackType
from typing import Any, Self

from kubernetes.client.exceptions import ApiException

from gameday.clock import Clock
from gameday.cluster.back_off import pause_s
from gameday.cluster.kube_errors import hint_of, reason_of
from gameday.cluster.list_watch import ADDED, DELETED, MODIFIED, STATE, Key, ListWatch
from gameday.errors import AdapterError, WatchRefusedError

log = logging.getLogger(__name__)

SYNCED_WITHIN_S = 10.0
"""Time for reading the first state; a server that is silent for longer does not answer."""

# An API server that restarts is back within seconds, and changes meanwhile are dated by their own timestamps.
_BACK_OFF_S = (0.5, 5.0)
# A watch that ended sooner counts as failed, no matter why the server ended it.
_LASTING_S = 1.0
# The API server asks for 1 to 32 s; a run cannot wait longer if a proxy asks for more.
_LONGEST_RETRY_AFTER_S = 32.0
_ENDS_WITHIN_S = 1.0
# Asking again does not help; by then the transport has already waited for a server that is starting.
_REFUSALS = (401, 403, 404)
_LIST_CALL = re.compile(r"list_(?:namespaced_)?(?P<kind>[a-z_]+?)(?:_for_all_namespaces)?$")


class Follower:
    """The newest known state of the objects that one list call selects; a context manager.

    The state comes as events of the watch itself if the server streams lists (sendInitialEvents, Kubernetes 1.34 and
    later), otherwise by a list before it. `changed` is notified after every change.
    """

    def __init__(
        self,
        list_call: Callable[..., Any],
        on_change: Callable[[str, Any], None] | None = None,
        decode: Callable[[dict[str, Any]], Any] | None = None,
        /,
        clock: Clock = Clock(),
        **selection: Any,
    ) -> None:
        """Prepare to follow; nothing is sent until the context is entered.

        Args:
            list_call: A list method of the official client, or a function with its keyword arguments that returns a 2xx
                response unread and raises ApiException otherwise.
            on_change: Called as `on_change(type, object)` in the watch's thread, with ADDED, MODIFIED or DELETED.
                Objects of the first state come as ADDED, before `wait_synced` is true.
            decode: Makes an object from an item's JSON; None for the client's own model.
            clock: The clock for the watch's up and down times.
            selection: The call's `namespace`, `label_selector` and `field_selector`.
        """
        self.changed = threading.Condition()
        self._clock = clock
        self._question = _question(list_call, selection)
        self._list_watch = ListWatch(list_call, selection, decode)
        self._on_change = on_change
        self._objects: dict[Key, Any] = {}
        self._synced = threading.Event()
        self._decided = threading.Event()
        self._refusal: WatchRefusedError | None = None
        self._failure = ""
        """The reason of the last failure since the watch was up."""
        self._down_since: float | None = self._clock.monotonic()
        self._gap = (-math.inf, -math.inf)
        """The times when the watch last went down, and came up again."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self._question, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the watch; `on_change` is no longer called. A thread that is still connecting ends by itself."""
        self._stopping.set()
        self._list_watch.stop()
        if self._thread.is_alive():
            self._thread.join(_ENDS_WITHIN_S)

    def wait_synced(self, timeout_s: float = SYNCED_WITHIN_S) -> bool:
        """Wait until the first state has been read or refused; return True if it has been read."""
        self._clock.wait_set(self._decided, timeout_s)
        return self._synced.is_set()

    def require_synced(self, timeout_s: float = SYNCED_WITHIN_S) -> None:
        """Wait until the first state has been read.

        Raises:
            WatchRefusedError: The server refuses; raised without waiting for the time-out.
            AdapterError: The server does not answer within `timeout_s` seconds.
        """
        if self.wait_synced(timeout_s):
            return
        if self._refusal is not None:
            raise self._refusal
        raise AdapterError("the API server", f"{self._question}: no answer within {timeout_s:g} s{self._why()}")

    def trouble(self, for_s: float = 0.0) -> str:
        """Return why the known state may be old, if the watch has been down for `for_s` seconds; otherwise empty."""
        since = self._down_since
        if since is None or (down_s := self._clock.monotonic() - since) < for_s:
            return ""
        return str(self._refusal) if self._refusal else f"{self._question}: down for {down_s:.0f} s{self._why()}"

    @property
    def unseen_s(self) -> float:
        """Seconds for which an incoming change may already have existed: 0, unless the watch was down just now.

        A connection that continues from a version brings the missed changes right after it is up.
        """
        now, (went, came) = self._clock.monotonic(), self._gap
        since = went if now - came < _LASTING_S else now
        return now - (since if self._down_since is None else self._down_since)

    def _why(self) -> str:
        return f": {self._failure}" if self._failure else ""

    def objects(self) -> list[Any]:
        """Return the objects as last seen."""
        with self.changed:
            return list(self._objects.values())

    def named(self, name: str) -> Any | None:
        """Return the object of that name as last seen; None if there is none."""
        with self.changed:
            return next((item for key, item in self._objects.items() if key[1] == name), None)

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            began, asked_s = self._clock.monotonic(), 0.0
            try:
                with closing(self._list_watch.changes()) as changes:
                    for kind, key, item in changes:
                        self._take(kind, key, item)
            except Exception as error:  # any: if the thread died, an old state would look fresh
                asked_s = self._failed(error)
            lasted = self._down_since is None and self._clock.monotonic() - began > _LASTING_S
            if self._down_since is None:
                self._down_since = self._clock.monotonic()
            failures = 0 if lasted else failures + 1
            if failures:
                self._clock.wait_set(self._stopping, max(asked_s, pause_s(failures, *_BACK_OFF_S)))

    def _take(self, kind: str, key: Key, item: Any) -> None:
        if kind == STATE:
            if item is not None:
                self._replace(item)
            if self._down_since is not None:
                self._gap = (self._down_since, self._clock.monotonic())
            self._down_since, self._refusal, self._failure = None, None, ""
            self._synced.set()
            self._decided.set()
            return
        with self.changed:
            if kind == DELETED:
                self._objects.pop(key, None)
            else:
                self._objects[key] = item
        self._notify(kind, item)

    def _replace(self, state: dict[Key, Any]) -> None:
        with self.changed:
            before, self._objects = self._objects, state
        for key in before.keys() - state.keys():
            self._notify(DELETED, before[key])
        for key, item in list(state.items()):
            self._notify(MODIFIED if key in before else ADDED, item)

    def _notify(self, kind: str, item: Any) -> None:
        try:
            if self._on_change and not self._stopping.is_set():
                self._on_change(kind, item)
        except Exception:
            log.exception("%s: its callback failed", self._question)
        finally:
            with self.changed:
                self.changed.notify_all()

    def _failed(self, error: Exception) -> float:
        """Keep the reason; return the seconds that the server asks us to stay away."""
        self._failure = reason_of(error)
        if not isinstance(error, ApiException):
            return 0.0
        if error.status in _REFUSALS:
            why = f"{self._question}: {self._failure}"
            self._refusal = WatchRefusedError("the API server", why, hint_of(error), status=error.status)
            self._decided.set()
        asked = (error.headers or {}).get("Retry-After", "")
        return min(float(asked), _LONGEST_RETRY_AFTER_S) if asked.isdecimal() else 0.0


def _question(list_call: Callable[..., Any], selection: dict[str, Any]) -> str:
    """Return the question in words, e.g. 'watch events in namespace default'."""
    found = _LIST_CALL.match(getattr(list_call, "__name__", ""))
    where = f" in namespace {selection['namespace']}" if "namespace" in selection else ""
    return f"watch {found['kind'].replace('_', ' ')}s{where}" if found else f"watch{where}"
