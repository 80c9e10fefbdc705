"""Turns at the Prefect server, for a process with many flow runs at the same time.

When many flow runs begin or end at once, Prefect 3.8 on SQLite answers some of them with 503 (`database is locked`),
and its client waits 2, 4, 8 s and more before it tries again. Measured without a cluster, on the server of
`gameday.processes.prefect_app`: 40 flow runs of one process end in 35 to 41 s, and with turns in 20 s.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_AT_ONCE = 8
"""Flow runs that may begin or end at the same time. Our own choice."""


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
        """Give up this thread's turn, if it has one, for the length of a block: the flow's own work."""
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
