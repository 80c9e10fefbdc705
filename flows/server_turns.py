"""Turns at the Prefect server, for a process with many flow runs at the same time.

A server on SQLite has 15 connections to its database, whatever its settings say (SQLAlchemy's default; Prefect 3.8).
When 15 requests wait for the database's one writer, all stand still for 45 s and more, until some time out. Flow runs
that begin or end are what writes: 10 at a time are well, 40 are not (docs/measured.md, A storm).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_AT_ONCE = 8
"""Half of the server's connections, and one: the other half is for reads, and for the server's own services."""


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
