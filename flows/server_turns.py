"""Turns at the Prefect server, for a process with many flow runs at the same time.

Prefect 3.8 on SQLite hangs for 45 s and more, with the processor idle, when many flow runs begin or end at once:
requests wait for the database's one writer until some time out (`database is locked`). Measured: 10 at a time are well,
20 hang now and then, 40 at once (docs/measured.md, A storm). Why the writer does not end is not known.
Turns make it rarer, and are no cure.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_AT_ONCE = 8
"""Our choice: fewer than the 10 that were well."""


class Turns:
    """A limit on the flow runs of this process that begin or end at the same time."""

    def __init__(self, at_once: int = _AT_ONCE) -> None:
        self._free = threading.Semaphore(at_once)
        self._own = threading.local()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold a turn for the length of a block, in which this thread runs a flow."""
        with self._free:
            self._own.held = True
            try:
                yield
            finally:
                self._own.held = False

    @contextmanager
    def set_aside(self) -> Iterator[None]:
        """Leave this thread's turn to others for the length of a block: the flow's own work. Without one do nothing."""
        if not getattr(self._own, "held", False):
            yield
            return
        self._free.release()
        try:
            yield
        finally:
            self._free.acquire()


TURNS = Turns()
"""The turns of this process."""
