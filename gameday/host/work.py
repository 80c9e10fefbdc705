"""Continuing work, as the agent sees it: it reports line by line, and can always be ended.

The real and the virtual host differ only in the source of the lines, a child's standard output or an HTTP answer, and
in how to cut that source off.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from pydantic import ValidationError

from gameday.errors import HostError, LinkError
from gameday.host.base import WorkReport

FIRST_REPORT_TIMEOUT_S = 45.0
"""CuPy's import, a CUDA context and cuBLAS' first call take some ten seconds on a cold node; the agent has 60."""

STEERING_TIMEOUT_S = 10.0
"""A burn that is not steered for this long ends itself: the agent that should check its temperature each second
hangs."""


class Work:
    """Work on one GPU; a thread follows it until its reports end."""

    def __init__(
        self, lines: Iterable[bytes], cut_off: Callable[[], None], steer: Callable[[float], None] | None = None
    ) -> None:
        """Follow work that has been started.

        Args:
            lines: Its reports, each a WorkReport as JSON.
            cut_off: Ends the work and the lines; must not raise.
            steer: Sets the share of the time for which the work runs, 0 to 1; None if it cannot be steered.
        """
        self.steer = steer
        self._lines = lines
        self._cut_off = cut_off
        self._latest: WorkReport | None = None
        self._error = ""
        self._reported_or_ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def first_report(self) -> WorkReport:
        """Wait for the first report.

        Raises:
            LinkError: NCCL finds no way to the network.
            HostError: The work does not begin, or reports nothing in time. It is then cut off.
        """
        in_time = self._reported_or_ended.wait(FIRST_REPORT_TIMEOUT_S)
        report = self.latest_report()
        if in_time and report is not None and not report.error:
            return report
        self.end()
        raise (LinkError if report and report.no_link else HostError)(
            (report.error if report else "") or f"the work gave no report within {FIRST_REPORT_TIMEOUT_S:g} s"
        )

    def latest_report(self) -> WorkReport | None:
        """Return the latest report, with `error` if the lines ended without being cut off."""
        if self._error:
            return (self._latest or WorkReport(seconds=0)).model_copy(update={"error": self._error})
        return self._latest

    def end(self) -> WorkReport | None:
        """Cut the work off, and return its last report."""
        last = self.latest_report()
        self._cut_off()
        self._thread.join(10)
        return last

    def _follow(self) -> None:
        try:
            for line in self._lines:
                self._latest = WorkReport.model_validate_json(line)
                self._reported_or_ended.set()
        except (OSError, ValueError) as error:  # cut off, or a line that is no report
            self._error = f"the work's reports broke off: {_cause(error)}"
        else:
            self._error = self._latest.error if self._latest and self._latest.error else "the work ended by itself"
        self._reported_or_ended.set()


def _cause(error: Exception) -> str:
    return str(error.errors()[0]["msg"]) if isinstance(error, ValidationError) else str(error) or type(error).__name__


class WorkByGpu:
    """The work that this agent has started, at most one on each GPU."""

    def __init__(self) -> None:
        self._works: dict[int, Work] = {}

    def start(self, gpu: int, begin: Callable[[], Work]) -> WorkReport:
        """Start work with `begin` and return its first report.

        Raises:
            HostError: The GPU has work of this agent already, or the work does not begin.
        """
        if gpu in self._works:
            raise HostError(f"GPU {gpu} has work of this agent already; end that first")
        work = begin()
        report = work.first_report()
        self._works[gpu] = work
        return report

    def steer(self, gpu: int, utilization: float) -> None:
        """Set the share of the time for which the work runs, 0 to 1.

        Raises:
            HostError: The GPU has no work of this agent that can be steered.
        """
        work = self._works.get(gpu)
        if work is None or work.steer is None:
            raise HostError(f"GPU {gpu} has no work of this agent with a load that could be changed")
        work.steer(utilization)

    def report(self, gpu: int) -> WorkReport | None:
        """Return the latest report; None if this agent has no work on the GPU."""
        work = self._works.get(gpu)
        return work.latest_report() if work else None

    def end(self, gpu: int) -> WorkReport | None:
        """End this agent's work and return its last report; None if there is none."""
        work = self._works.pop(gpu, None)
        return work.end() if work else None
