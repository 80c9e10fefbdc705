"""What QA reads of a node: NVML at rest and under load, the load's own figures, the kernel log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from gameday.agent.mark import marker_line
from gameday.errors import HostError
from gameday.host.base import GpuSample, Host, LoadResult

T = TypeVar("T")
Source = Literal["nvml", "load", "kernel log"]

LOAD_S = 1.0
"""Per GPU, all at once: long enough for hundreds of GEMMs, short enough that QA stays a matter of seconds."""
_SAMPLE_EVERY_S = 0.25


@dataclass(frozen=True)
class GpuReadings:
    """One GPU. `loaded` is empty where no load ran."""

    rest: GpuSample
    loaded: tuple[GpuSample, ...] = ()
    load: LoadResult | None = None

    @property
    def load_ran(self) -> bool:
        return self.load is not None and self.load.gemm_tflops is not None

    @property
    def samples(self) -> tuple[GpuSample, ...]:
        return (self.rest, *self.loaded)

    def values(self, field: str) -> list[float]:
        """What the samples say of one field, unknown ones left out."""
        found = (getattr(sample, field) for sample in self.samples)
        return [value for value in found if value is not None]


@dataclass(frozen=True)
class Readings:
    """`nvml_error` and `log_error`: why there is nothing of that kind; empty where there is.

    `kernel_log` begins with the run's marker; `older_log` is what was there before, nothing after a boot.
    """

    gpus: tuple[GpuReadings, ...]
    older_log: tuple[str, ...]
    kernel_log: tuple[str, ...]
    seconds: dict[Source, float]
    expected_gpus: int | None = None
    nvml_error: str = ""
    log_error: str = ""


def read_node(host: Host, marker: str, expected_gpus: int | None, ended: threading.Event, *, load: bool) -> Readings:
    """Never raises HostError: what could not be read is said in the readings. `ended` leaves the load out.

    Without the marker (a boot empties the ring buffer, a flood wraps it) the whole kernel log counts.
    """
    seconds: dict[Source, float] = {}
    log, log_error = _timed("kernel log", host.read_kernel_log, seconds)
    rest, nvml_error = _timed("nvml", host.gpus, seconds)
    lines = tuple(log or ())
    began = next((at for at, line in enumerate(lines) if line.endswith(marker_line(marker))), 0)
    start = time.monotonic()
    gpus = _under_load(host, rest or []) if load and not ended.is_set() else ()
    seconds["load"] = time.monotonic() - start
    return Readings(
        gpus=gpus or tuple(map(GpuReadings, rest or [])),
        older_log=lines[:began],
        kernel_log=lines[began:],
        seconds=seconds,
        expected_gpus=expected_gpus,
        nvml_error=nvml_error,
        log_error=log_error,
    )


def _timed(source: Source, read: Callable[[], T], seconds: dict[Source, float]) -> tuple[T | None, str]:
    start = time.monotonic()
    try:
        return read(), ""
    except HostError as error:
        return None, str(error)
    finally:
        seconds[source] = time.monotonic() - start


def _under_load(host: Host, rest: list[GpuSample]) -> tuple[GpuReadings, ...]:
    """Load every GPU that answers at once, and sample them all while it lasts."""
    results: dict[int, LoadResult] = {}

    def load(gpu: int) -> None:
        try:
            results[gpu] = host.measure_load(gpu, LOAD_S)
        except HostError as error:
            results[gpu] = LoadResult(gpu=gpu, gemm_tflops=None, memory_bandwidth_gbs=None, detail=str(error))

    threads = [threading.Thread(target=load, args=(gpu.index,)) for gpu in rest if not gpu.lost]
    for thread in threads:
        thread.start()
    loaded: list[GpuSample] = []
    for thread in threads:
        while thread.is_alive():
            loaded += _sample(host)
            thread.join(_SAMPLE_EVERY_S)
    return tuple(
        GpuReadings(gpu, tuple(sample for sample in loaded if sample.index == gpu.index), results.get(gpu.index))
        for gpu in rest
    )


def _sample(host: Host) -> list[GpuSample]:
    try:
        return host.gpus()
    except HostError:
        return []  # the reading at rest stands; a GPU lost under load shows in its load's own result
