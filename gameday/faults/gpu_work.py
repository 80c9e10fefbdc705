"""What the faults share that are work on a GPU: watch it while it is held, and end it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from gameday.errors import HostError
from gameday.faults.base import Evidence
from gameday.faults.gpu import GpuParameters
from gameday.host.base import Host, WorkReport

WATCH_EVERY_S = 1.0


def index_of(parameters: GpuParameters, gpu: int) -> int:
    return gpu if parameters.gpu is None else parameters.gpu


def watch(host: Host, index: int, ended: threading.Event, look: Callable[[WorkReport], bool]) -> None:
    """Each second until `ended`, or until `look` says stop. Raises HostError when the work ends by itself."""
    while not ended.wait(WATCH_EVERY_S):
        report = host.work_report(index)
        if report is None or report.error:
            raise HostError(f"the work on GPU {index} is over: {report.error if report else 'none was begun'}")
        if not look(report):
            return


def end(host: Host, index: int, told: Callable[[WorkReport], str]) -> Evidence:
    """Idempotent, and good for the work of an agent that is dead: that one's figures are lost."""
    last = host.end_work(index)
    return Evidence(lines=(f"ended the work on GPU {index}" + (f": {told(last)}" if last else ""),))
