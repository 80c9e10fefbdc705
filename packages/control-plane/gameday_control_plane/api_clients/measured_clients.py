"""A load's clients in a process of their own, from beginning to end."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from typing import Generic, TypeVar

from pydantic import BaseModel

from gameday_control_plane.api_clients.process import ClientProcess, Line

_END_TIMEOUT_S = 10.0
_LOOK_EVERY_S = 0.1

L = TypeVar("L", bound=Line)


class MeasuredClients(ABC, Generic[L]):
    """Base of the clients that are measured. They send nothing until `begin`.

    A subclass sets its own state before it calls this `__init__`, because lines may arrive from then on.
    """

    def __init__(self, module: str, order: BaseModel, line: type[L]) -> None:
        """Start the process and wait until it is ready. The arguments are those of ClientProcess. Raises HostError."""
        self._ended_at: datetime | None = None
        self.began_at = datetime.now(UTC)
        self._process = ClientProcess(module, order, line, self._hear)
        try:
            self._process.wait_ready()
        except BaseException:
            self.end()
            raise

    @property
    def is_over(self) -> bool:
        """True if the process is gone."""
        return self._process.is_over

    @property
    def has_failed(self) -> bool:
        """True if the process ended without its last line."""
        return self._process.has_failed

    @property
    def ended_at(self) -> datetime:
        """The time of the first `end`; now if there was none."""
        return self._ended_at or datetime.now(UTC)

    def begin(self) -> None:
        """Let the clients begin. Raises HostError if their process is gone."""
        self.began_at = datetime.now(UTC)
        self._process.go()

    def wait_for(self, happened: threading.Event, timeout_s: float) -> bool:
        """Wait for something to happen, for `timeout_s`, or until the process is gone; return True if it happened."""
        deadline = time.monotonic() + timeout_s
        while not happened.wait(_LOOK_EVERY_S):
            if self.is_over or time.monotonic() > deadline:
                return happened.is_set()
        return True

    def wait_until(self, deadline: float, ended: threading.Event) -> None:
        """Wait until a time of the monotonic clock, until `ended`, or until the process is gone."""
        while time.monotonic() < deadline and not self.is_over and not ended.wait(_LOOK_EVERY_S):
            pass

    def end(self) -> None:
        """End the clients; idempotent."""
        self._ended_at = self.ended_at
        self._process.ask_to_end()
        self._process.end(_END_TIMEOUT_S)

    @abstractmethod
    def _hear(self, line: L) -> None:
        """Take a line of the process, in a thread of its own."""
