"""A work queue of keys: each key is worked on by one worker at a time, and failures back off.

It works like client-go's workqueue: events only say *which* object may need work, so many events on one object become
one reconcile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime

from kubesim.clock import now_utc
from kubesim.errors import ApiError

log = logging.getLogger(__name__)

FIRST_RETRY_S = 0.05
LAST_RETRY_S = 10.0


class WorkQueue:
    """Keys that wait for `reconcile(key)`; if that raises ApiError, it is called again later."""

    def __init__(self, name: str, reconcile: Callable[[str], Awaitable[None]], workers: int = 4) -> None:
        self._name = name
        self._reconcile = reconcile
        self._workers = workers
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._waiting: set[str] = set()
        self._busy: set[str] = set()
        self._again: set[str] = set()
        self._failures: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def add(self, key: str) -> None:
        if key in self._busy:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._queue.put_nowait(key)

    def add_after(self, key: str, delay_s: float) -> None:
        """Add the key once the delay has passed; of several delays for one key, the earliest counts."""
        loop = asyncio.get_running_loop()
        due = loop.time() + max(0.0, delay_s)
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self._timers[key] = loop.call_at(due, self._due, key)

    def add_at(self, key: str, when: datetime) -> None:
        self.add_after(key, (when - now_utc()).total_seconds())

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work())

    def _due(self, key: str) -> None:
        self._timers.pop(key, None)
        self.add(key)

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            self._waiting.discard(key)
            self._busy.add(key)
            try:
                await self._reconcile(key)
                self._failures.pop(key, None)
            except ApiError as error:
                # A conflict is the usual answer to a stale read: the watch brings the newer object.
                level = logging.DEBUG if error.conflict or error.not_found else logging.WARNING
                log.log(level, "%s %s: %s", self._name, key, error)
                self._retry(key)
            except Exception:
                # One malformed object must not stop the controller for all others.
                log.exception("%s %s: reconcile failed", self._name, key)
                self._retry(key)
            finally:
                self._busy.discard(key)
                if key in self._again:
                    self._again.discard(key)
                    self.add(key)

    def _retry(self, key: str) -> None:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.add_after(key, min(FIRST_RETRY_S * 2**failures, LAST_RETRY_S))
