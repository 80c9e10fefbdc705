"""Work that goes on, as the agent sees it: reports that arrive line by line, and an end that is certain.

Real and virtual host differ only in where the lines come from, a child's
standard output or an HTTP answer, and in how that source is cut off.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from pydantic import ValidationError

from gameday.errors import HostError
from gameday.host.base import WorkReport

FIRST_REPORT_WITHIN_S = 45.0
"""CuPy's import, a CUDA context and cuBLAS' first call take some ten seconds on a cold node; the agent has 60."""

UNWATCHED_FOR_S = 10.0
"""A burn that has been told nothing for so long ends: whoever should watch its heat, each second, is stuck."""


class Work:
    """One work, followed by a thread of its own until its lines end. `cut_off` must end them, and must not raise."""

    def __init__(
        self, lines: Iterable[bytes], cut_off: Callable[[], None], steer: Callable[[float], None] | None = None
    ) -> None:
        self.steer = steer
        self._lines = lines
        self._cut_off = cut_off
        self._latest: WorkReport | None = None
        self._error = ""
        self._heard = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def first(self) -> WorkReport:
        """Raises HostError where the work does not begin, or says nothing in time; it is then cut off."""
        heard = self._heard.wait(FIRST_REPORT_WITHIN_S)
        report = self.latest()
        if heard and report is not None and not report.error:
            return report
        self.end()
        raise HostError(
            (report.error if report else "") or f"the work gave no report within {FIRST_REPORT_WITHIN_S:g} s"
        )

    def latest(self) -> WorkReport | None:
        """With `error` once the lines have ended without being cut off."""
        if self._error:
            return (self._latest or WorkReport(seconds=0)).model_copy(update={"error": self._error})
        return self._latest

    def end(self) -> WorkReport | None:
        last = self.latest()
        self._cut_off()
        self._thread.join(10)
        return last

    def _follow(self) -> None:
        try:
            for line in self._lines:
                self._latest = WorkReport.model_validate_json(line)
                self._heard.set()
        except (OSError, ValueError) as error:  # cut off, or a report that is none
            self._error = f"the work's reports broke off: {_said(error)}"
        else:
            self._error = self._latest.error if self._latest and self._latest.error else "the work ended by itself"
        self._heard.set()


def _said(error: Exception) -> str:
    return str(error.errors()[0]["msg"]) if isinstance(error, ValidationError) else str(error) or type(error).__name__


class Works:
    """What one host has begun, by GPU."""

    def __init__(self) -> None:
        self._works: dict[int, Work] = {}

    def start(self, gpu: int, begin: Callable[[], Work]) -> WorkReport:
        """Raises HostError."""
        if gpu in self._works:
            raise HostError(f"GPU {gpu} has work of this agent already; end that first")
        work = begin()
        report = work.first()
        self._works[gpu] = work
        return report

    def steer(self, gpu: int, utilization: float) -> None:
        """Raises HostError."""
        work = self._works.get(gpu)
        if work is None or work.steer is None:
            raise HostError(f"GPU {gpu} has no work of this agent whose load could be changed")
        work.steer(utilization)

    def report(self, gpu: int) -> WorkReport | None:
        work = self._works.get(gpu)
        return work.latest() if work else None

    def end(self, gpu: int) -> WorkReport | None:
        work = self._works.pop(gpu, None)
        return work.end() if work else None
