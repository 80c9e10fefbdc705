"""Start the rehearsal's processes, know when they serve, and end them by their own pid, also after a failure."""

from __future__ import annotations

import json
import os
import select
import signal
import ssl
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from gameday.errors import ChildError
from kubesim.process import die_with_parent

_STOP_WITHIN_S = 5.0


class Child:
    """One process in a session of its own, so that a terminal's Ctrl-C reaches only us."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        log: Path,
        env: Mapping[str, str] | None = None,
        *,
        says_ready: bool = True,
        dies_by: signal.Signals = signal.SIGTERM,
    ) -> None:
        """`says_ready`: one of our own, which print one line when they serve; what others print goes to the log.

        `dies_by` is what the kernel sends when we die.
        """
        self._die = partial(die_with_parent, dies_by)
        self._says_ready = says_ready
        self.name = name
        self.argv = list(argv)
        self.log = log
        self.env = {**os.environ, **(env or {})}
        self.process: subprocess.Popen[bytes] | None = None
        self.ready: dict[str, Any] = {}

    def start(self) -> None:
        """Start it; the kernel ends it when we die (so call this from the thread that lives longest: the main one)."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if self._says_ready else log,
                stderr=log,
                env=self.env,
                start_new_session=True,
                preexec_fn=self._die,  # noqa: PLW1509 - it takes no lock and loads nothing
            )

    def await_ready_line(self, within_s: float) -> dict[str, Any]:
        """The JSON line our own programs print when they serve; raises ChildError."""
        assert self.process is not None and self.process.stdout is not None
        deadline, buffer = time.monotonic() + within_s, b""
        while b"\n" not in buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], max(left, 0))[0]:
                raise self.error(f"was not ready within {within_s:g} s")
            chunk = os.read(self.process.stdout.fileno(), 65536)
            if not chunk:
                self.process.wait()
                raise self.error("ended before it was ready")
            buffer += chunk
        try:
            self.ready = json.loads(buffer.partition(b"\n")[0])
        except ValueError:
            raise self.error(f"said {buffer[:80]!r} instead of being ready") from None
        return self.ready

    def await_url(self, url: str, within_s: float, tls: ssl.SSLContext | None = None) -> None:
        """Wait until a foreign program answers 200 there; raises ChildError."""
        assert self.process is not None
        deadline = time.monotonic() + within_s
        with httpx.Client(timeout=1.0, trust_env=False, verify=tls or True) as client:
            while time.monotonic() < deadline:
                if self.process.poll() is not None:
                    raise self.error("ended before it was ready")
                try:
                    if client.get(url).status_code == httpx.codes.OK:
                        return
                except httpx.HTTPError:
                    pass
                time.sleep(0.05)
        raise self.error(f"did not answer {url} within {within_s:g} s")

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def ask_to_end(self) -> None:
        if self.alive and self.process is not None:
            self.process.send_signal(signal.SIGTERM)

    def end(self, within_s: float = _STOP_WITHIN_S) -> None:
        """SIGTERM, and SIGKILL after `within_s`; safe to call again."""
        if self.process is None:
            return
        self.ask_to_end()
        try:
            self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()

    def error(self, what: str) -> ChildError:
        status = self.process.poll() if self.process else None
        lines = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        last = f": {lines[-1][:300]}" if lines else ""
        ended = f" (exit status {status})" if status is not None else ""
        return ChildError(f"{self.name} {what}{ended}{last}; its log is {self.log}")
