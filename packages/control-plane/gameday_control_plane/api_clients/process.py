"""The processes of simulated clients: they take an order, begin at a second line, and die with the agent."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from pydantic import BaseModel, Field, ValidationError

from gameday.errors import HostError
from gameday_control_plane.values.api_requests import LoadModel

_READY_TIMEOUT_S = 60.0
"""Seconds: Python, httpx and the TLS context take half a second alone, and some seconds beside a busy server."""


class Line(LoadModel):
    """A line that a client process prints."""

    ready: bool = Field(default=False, description="it waits for `go`")

    @property
    def is_last(self) -> bool:
        """True if the process ends by itself after this line."""
        raise NotImplementedError


L = TypeVar("L", bound=Line)


class ClientProcess(Generic[L]):
    """A client process, with the thread that reads its lines."""

    def __init__(self, module: str, order: BaseModel, line: type[L], hear: Callable[[L], None]) -> None:
        """Start the process; it begins when `go` is called.

        Args:
            module: The module for `python -m`.
            order: The first line on its standard input.
            line: The model of its lines.
            hear: Called with each line, in a thread for this process.

        Raises:
            HostError: It cannot be started.
        """
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise HostError(f"cannot start a client process: {error.strerror}") from None
        self._line = line
        self._hear = hear
        self._ready = threading.Event()
        self._is_whole = False
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()
        self._send(order.model_dump_json())

    @property
    def is_over(self) -> bool:
        """True if it has ended and all of its lines were heard."""
        return not self._thread.is_alive()

    @property
    def has_failed(self) -> bool:
        """True if it has ended without its last line."""
        return self.is_over and not self._is_whole

    def wait_ready(self) -> None:
        """Wait until it can begin. Raises HostError if it does not get there."""
        if not self._ready.wait(_READY_TIMEOUT_S) or self.is_over:
            raise HostError("a client process did not start; its own words are in this pod's log")

    def go(self) -> None:
        """Let it begin. Raises HostError if it is gone."""
        self._send("go")

    def ask_to_end(self) -> None:
        """Close its standard input, which ends it; idempotent."""
        stdin = self._process.stdin
        assert stdin
        try:
            stdin.close()
        except OSError:
            return  # it is gone already

    def end(self, timeout_s: float) -> None:
        """Wait for its end, and kill it after `timeout_s`; idempotent."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._process.kill()
            self._thread.join()
        self._process.wait()

    def _send(self, line: str) -> None:
        stdin = self._process.stdin
        assert stdin
        try:
            stdin.write(line.encode() + b"\n")
            stdin.flush()
        except OSError as error:
            raise HostError(f"a client process is gone: {error.strerror}") from None

    def _follow(self) -> None:
        stdout = self._process.stdout
        assert stdout
        with stdout:
            for raw in stdout:
                try:
                    line = self._line.model_validate_json(raw)
                except ValidationError:
                    continue  # cut by the process's death
                if line.ready:
                    self._ready.set()
                self._is_whole = self._is_whole or line.is_last
                self._hear(line)
        self._ready.set()
