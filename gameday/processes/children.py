"""Start processes, find out when they serve, and end them by their own pid, even after a failure."""

from __future__ import annotations

import json
import os
import select
import signal
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from gameday.errors import ChildError
from gameday.processes.lifeline import die_with_parent

_ENDS_WITHIN_S = 5.0
_POLL_S = 0.05
STALLED_AFTER_S = 60.0
PRIVATE = 0o077
"""The umask that makes files readable for their owner only."""
_FIRST_TO_GO = b"1000"
"""The value that kubelet gives a BestEffort container (pkg/kubelet/qos): the kernel kills such processes first.

Among several, the kernel takes the largest value. Raising it needs no rights, and a child passes it on to its own
children.
"""
_LEAST_CPU_SHARE = 0.01
"""A share of one core.

A starting program gets ten times as much on two cores at load 20; one that only waits, and checks every second
whether it may go on, uses less.
"""


class Progress:
    """The progress of a starting process: a slow one keeps using the processor, one that hangs does not."""

    def __init__(self, pid: int, stalled_after_s: float) -> None:
        """Watch a process.

        Args:
            pid: The process.
            stalled_after_s: Seconds with next to no processor time after which it has stalled.
        """
        self._pid = pid
        self._stalled_after_s = stalled_after_s
        self._since = time.monotonic()
        self._cpu_s = cpu_seconds(pid)

    def has_stalled(self) -> bool:
        """Return True if the process has stalled; call this every now and then."""
        now = time.monotonic()
        if now - self._since < self._stalled_after_s:
            return False
        used_s, self._cpu_s = cpu_seconds(self._pid) - self._cpu_s, cpu_seconds(self._pid)
        self._since = now
        return used_s < _LEAST_CPU_SHARE * self._stalled_after_s


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used, or 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # proc(5): utime and stime


def _prepare(dies_by: signal.Signals, *, plays_game_days: bool) -> None:
    """Tie this process to its parent, keep its files private, and let the kernel's OOM killer choose it before others.

    A process that plays game-days is spared that, because killing it is no better than killing any program. Its reports
    are as readable as its user wants.
    """
    die_with_parent(dies_by)
    if plays_game_days:
        return
    os.umask(PRIVATE)
    try:
        file = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    except OSError:  # no Linux
        return
    try:
        os.write(file, _FIRST_TO_GO)
    finally:
        os.close(file)


@contextmanager
def private_files() -> Iterator[None]:
    """Make files and folders in the block for our own user only, with any umask; children do it by themselves."""
    before = os.umask(PRIVATE)
    try:
        yield
    finally:
        os.umask(before)


class Child:
    """A process in a session of its own, so that a terminal's Ctrl-C reaches only us."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        log: Path,
        env: Mapping[str, str] | None = None,
        *,
        says_ready: bool = True,
        dies_by: signal.Signals = signal.SIGTERM,
        plays_game_days: bool = False,
    ) -> None:
        """Prepare a process. It is not started yet.

        `says_ready` is for our own programs, which print one line when they serve; the output of others goes to the
        log. `dies_by` is the signal that the kernel sends when we die. A child that `plays_game_days` undoes their
        faults and writes their reports.
        """
        self._before_exec = partial(_prepare, dies_by, plays_game_days=plays_game_days)
        self._says_ready = says_ready
        self.name = name
        self.argv = list(argv)
        self.log = log
        self.env = {**os.environ, **(env or {})}
        self.process: subprocess.Popen[bytes] | None = None
        self.ready: dict[str, Any] = {}
        self._log_begins = 0

    def start(self) -> None:
        """Start it. The kernel ends it when the calling thread dies, so call this from the longest-lived thread."""
        with open(self.log, "ab", opener=partial(os.open, mode=0o600)) as log:
            self._log_begins = log.tell()
            self.process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if self._says_ready else log,
                stderr=log,
                env=self.env,
                start_new_session=True,
                preexec_fn=self._before_exec,  # noqa: PLW1509 - it takes no lock and loads nothing
            )

    def await_ready_line(self, stalled_after_s: float = STALLED_AFTER_S) -> dict[str, Any]:
        """Wait for the JSON line that our own programs print when they serve, as long as the process makes progress.

        Raises:
            ChildError: It ended, hung for `stalled_after_s`, or printed something else.
        """
        assert self.process is not None and self.process.stdout is not None
        progress, buffer = Progress(self.process.pid, stalled_after_s), b""
        while b"\n" not in buffer:
            if not select.select([self.process.stdout], [], [], min(1.0, stalled_after_s))[0]:
                if progress.has_stalled():
                    raise self.error(f"is not ready, and did nothing for {stalled_after_s:g} s")
                continue
            chunk = os.read(self.process.stdout.fileno(), 65536)
            if not chunk:
                self.process.wait()
                raise self.error("ended before it was ready")
            buffer += chunk
        try:
            self.ready = json.loads(buffer.partition(b"\n")[0])
        except ValueError:
            raise self.error(f"printed {buffer[:80]!r} in place of its ready line") from None
        return self.ready

    def await_url(
        self,
        url: str,
        tls: ssl.SSLContext | None = None,
        stalled_after_s: float = STALLED_AFTER_S,
        auth: tuple[str, str] | None = None,
    ) -> None:
        """Wait until a foreign program answers 200 at a URL, as long as the process makes progress.

        `auth` is a user name and its password.

        Raises:
            ChildError: It ended, or hung for `stalled_after_s`.
        """
        with httpx.Client(timeout=1.0, trust_env=False, verify=tls or True, auth=auth) as client:
            self.await_condition(
                lambda: client.get(url).status_code == httpx.codes.OK, f"does not answer {url}", stalled_after_s
            )

    def await_condition(
        self,
        condition: Callable[[], bool],
        otherwise: str,
        stalled_after_s: float = STALLED_AFTER_S,
        every_s: float = _POLL_S,
    ) -> None:
        """Wait for a condition, as long as the process makes progress.

        Args:
            condition: May raise httpx.HTTPError while a server does not answer yet.
            otherwise: The words for a process that hung: "does not answer".
            stalled_after_s: Seconds with next to no processor time after which it counts as hung.
            every_s: Seconds between two looks.

        Raises:
            ChildError: It ended, or hung.
        """
        assert self.process is not None
        progress = Progress(self.process.pid, stalled_after_s)
        while True:
            if self.process.poll() is not None:
                raise self.error("ended before it was ready")
            try:
                if condition():
                    return
            except httpx.HTTPError:
                pass
            if progress.has_stalled():
                raise self.error(f"{otherwise}, and did nothing for {stalled_after_s:g} s")
            time.sleep(every_s)

    def wrote(self, words: str) -> bool:
        """Return True if this process wrote the words into its log, in upper or lower case."""
        try:
            with self.log.open("rb") as log:
                log.seek(self._log_begins)
                return words.lower() in log.read().decode(errors="replace").lower()
        except OSError:
            return False

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def send(self, sent: signal.Signals) -> None:
        """Send a signal if the process is alive."""
        if self.alive and self.process is not None:
            self.process.send_signal(sent)

    def ask_to_end(self) -> None:
        self.send(signal.SIGTERM)

    def kill(self) -> None:
        """Kill with SIGKILL and do not wait; the caller must still call `end`."""
        self.send(signal.SIGKILL)

    def end(self, timeout_s: float = _ENDS_WITHIN_S) -> None:
        """End with SIGTERM, and with SIGKILL after `timeout_s`. Safe to call again."""
        if self.process is None:
            return
        self.ask_to_end()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()

    def error(self, what: str) -> ChildError:
        status = self.process.poll() if self.process else None
        lines = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        last = f": {lines[-1][:300]}" if lines else ""
        ended = f" (exit status {status})" if status is not None else ""
        return ChildError(f"{self.name} {what}{ended}{last}; its log is {self.log}")
