"""The burn-in: every GPU of the node computes at the same time, and is read throughout.

All GPUs work at once because they share air and power: a weak fan shows only if its neighbours are hot, too. No GPU
begins while one is still hot, because it would be judged for its earlier work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from gameday.errors import HostError
from gameday.host.base import Burn, GpuSample, Host, WorkReport
from gameday.host.clock_reasons import THERMAL_MASK

SAMPLE_EVERY_S = 0.25
"""Interval of the readings. NVML's own sensors are read several times a second."""
START_BELOW_C = 80.0
"""Temperature above which no burn-in begins. Our own figure: an idle GPU is at half of it, one that has just stopped
working at about 70, and the first models slow down at 85."""
_ALL_THE_TIME = 1.0


@dataclass(frozen=True)
class Moment:
    """The reading of a GPU at one moment of the burn-in."""

    seconds: float
    """Time since the burn-in began."""
    gpu: GpuSample


@dataclass
class GpuBurn:
    """The burn-in of one GPU."""

    moments: list[Moment] = field(default_factory=list)
    last: WorkReport | None = None
    """The work's last report; None if none began."""
    seconds: float = 0.0
    """Time for which this GPU computed."""
    why_not: str = ""
    """The reason why it did not begin or ended early; empty if it ran to its end."""


def burn_in(
    host: Host,
    rest: Sequence[GpuSample],
    seconds: float,
    ceiling_c: float | None,
    ended: threading.Event,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], object] | None = None,
    why_yield: Callable[[Sequence[GpuSample]], str] | None = None,
) -> dict[int, GpuBurn]:
    """Load all GPUs that answer, and return the burn-in of each by its index. Never raises HostError.

    Args:
        host: The node.
        rest: The GPUs' readings at rest.
        seconds: Duration.
        ceiling_c: Temperature, degrees Celsius, above which the load ends immediately on all GPUs; None: no limit.
        ended: If set, the load ends.
        clock: Returns seconds. Tests and benchmarks on a model pass the model's clock.
        wait: Waits for this many seconds; None waits for `ended`.
        why_yield: Returns from a reading why the load has to stop at once; empty if it may go on.
    """
    burns = {gpu.index: GpuBurn() for gpu in rest if not gpu.lost}
    if why := _too_hot(rest):
        for burn in burns.values():
            burn.why_not = f"no burn-in began: {why}"
        return burns
    try:
        _start(host, burns)
        _watch(host, burns, seconds, ceiling_c, ended, clock, wait or ended.wait, why_yield)
    finally:
        with ThreadPoolExecutor(max(1, len(burns))) as pool:
            list(pool.map(lambda gpu: _end(host, gpu), burns))
    return burns


def _too_hot(rest: Sequence[GpuSample]) -> str:
    for gpu in rest:
        hot = gpu.temperature_c is not None and gpu.temperature_c >= START_BELOW_C
        if hot or (gpu.clocks_event_reasons or 0) & THERMAL_MASK:
            slowed = "" if hot else " and slows down for heat"
            return (
                f"GPU {gpu.index} is at {gpu.temperature_c} °C at rest{slowed}, and a burn-in begins below "
                f"{START_BELOW_C:g} °C. Look for work on it, and at its cooling"
            )
    return ""


def _start(host: Host, burns: dict[int, GpuBurn]) -> None:
    def start(gpu: int) -> None:
        try:
            burns[gpu].last = host.start_work(gpu, Burn())
        except HostError as error:
            burns[gpu].why_not = f"no load ran: {error}"

    with ThreadPoolExecutor(max(1, len(burns))) as pool:
        list(pool.map(start, burns))


def _watch(
    host: Host,
    burns: dict[int, GpuBurn],
    seconds: float,
    ceiling_c: float | None,
    ended: threading.Event,
    clock: Callable[[], float],
    wait: Callable[[float], object],
    why_yield: Callable[[Sequence[GpuSample]], str] | None,
) -> None:
    """Read all GPUs until the time is over, a GPU is above the ceiling, or no GPU works any more."""
    began = clock()
    while not ended.is_set() and any(_works(burn) for burn in burns.values()):
        passed = clock() - began
        samples = _read(host)
        for sample in samples:
            if sample.index in burns:
                burns[sample.index].moments.append(Moment(round(passed, 2), sample))
        for gpu, burn in burns.items():
            if _works(burn):
                burn.seconds = passed
                _follow(host, gpu, burn)
        if why := _why_ended(samples, ceiling_c) or (why_yield(samples) if why_yield else ""):
            for burn in burns.values():
                burn.why_not = burn.why_not or f"{why} after {passed:.0f} s, so the load ended on all GPUs"
            return
        if passed >= seconds:
            return
        wait(min(SAMPLE_EVERY_S, seconds - passed))


def _why_ended(samples: Sequence[GpuSample], ceiling_c: float | None) -> str:
    """Return why the load has to end on all GPUs; empty if it may go on."""
    if not samples:
        return "NVML did not answer"
    for sample in samples:
        if ceiling_c is not None and sample.temperature_c is not None and sample.temperature_c > ceiling_c:
            return f"GPU {sample.index} was at {sample.temperature_c:g} °C"
    return ""


def _works(burn: GpuBurn) -> bool:
    return burn.last is not None and not burn.why_not


def _follow(host: Host, gpu: int, burn: GpuBurn) -> None:
    try:
        host.steer_work(gpu, _ALL_THE_TIME)
        report = host.work_report(gpu)
    except HostError as error:
        report, burn.why_not = None, f"the load ended early: {error}"
    if report is not None:
        burn.last = report
        burn.why_not = f"the load ended early: {report.error}" if report.error else ""


def _end(host: Host, gpu: int) -> None:
    try:
        host.end_work(gpu)
    except HostError:
        return  # the work ends with this agent


def _read(host: Host) -> list[GpuSample]:
    try:
        return host.gpus()
    except HostError:
        return []  # the sample at rest is there, and the load's own report shows a GPU that was lost under it
