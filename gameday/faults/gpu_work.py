"""Functions that the faults share that are work on a GPU: watch it while it is held, and end it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from gameday.errors import HostError
from gameday.faults.base import Evidence
from gameday.faults.gpu import GpuParameters
from gameday.host.base import Host, WorkReport

WATCH_EVERY_S = 1.0


def gpu_index(parameters: GpuParameters, gpu: int) -> int:
    """Return the NVML index of the GPU that the plan names, or of the run's choice if it names none."""
    return gpu if parameters.gpu is None else parameters.gpu


def watch_work(host: Host, index: int, ended: threading.Event, look: Callable[[WorkReport], bool]) -> None:
    """Call `look` each second until `ended` is set, or until it returns False.

    Raises:
        HostError: The work ended by itself.
    """
    while not ended.wait(WATCH_EVERY_S):
        report = host.work_report(index)
        if report is None or report.error:
            raise HostError(f"the work on GPU {index} is over: {report.error if report else 'none was begun'}")
        if not look(report):
            return


def end_work(host: Host, index: int, describe: Callable[[WorkReport], str]) -> Evidence:
    """End the work on a GPU, even if its agent is dead. Idempotent.

    Args:
        host: The node.
        index: NVML index of the GPU.
        describe: Returns the last report in words. A dead agent's report is lost.
    """
    last = host.end_work(index)
    return Evidence(lines=(f"ended the work on GPU {index}" + (f": {describe(last)}" if last else ""),))
