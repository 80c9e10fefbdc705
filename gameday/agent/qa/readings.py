"""The readings that QA takes of a node: NVML at rest and under load, the load's own figures, the kernel log."""

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
"""Seconds of load, on all GPUs in parallel: long enough for hundreds of GEMMs, and QA still takes only seconds."""
_SAMPLE_EVERY_S = 0.25


@dataclass(frozen=True)
class GpuReadings:
    """The readings of one GPU."""

    rest: GpuSample
    loaded: tuple[GpuSample, ...] = ()
    """Samples of the GPUs under load; empty if no load ran."""
    load: LoadResult | None = None
    """The result of the load; None if no load was started."""

    @property
    def load_ran(self) -> bool:
        """Return whether a load was started and gave figures."""
        return self.load is not None and self.load.gemm_tflops is not None

    @property
    def samples(self) -> tuple[GpuSample, ...]:
        """All samples, at rest and under load."""
        return (self.rest, *self.loaded)

    def values(self, field: str) -> list[float]:
        """Return a field's values in all samples that have it."""
        values = (getattr(sample, field) for sample in self.samples)
        return [value for value in values if value is not None]


@dataclass(frozen=True)
class Readings:
    """The readings of a node."""

    gpus: tuple[GpuReadings, ...]
    older_log: tuple[str, ...]
    """Lines before the run's marker; empty after a boot."""
    kernel_log: tuple[str, ...]
    """Lines from the run's marker on."""
    seconds: dict[Source, float]
    """Duration of each reading."""
    expected_gpus: int | None = None
    nvml_error: str = ""
    """The reason why NVML could not be read; empty where it was."""
    log_error: str = ""
    """The reason why the kernel log could not be read; empty where it was."""


def read_node(host: Host, marker: str, expected_gpus: int | None, ended: threading.Event, *, load: bool) -> Readings:
    """Take all readings of a node. Never raises HostError: the readings hold the errors.

    Args:
        host: The host.
        marker: The run's marker. Where the kernel log has none (a boot empties the ring buffer, a flood of lines
            overwrites it) the whole kernel log counts as from this run.
        expected_gpus: Number of GPUs that the node had before; None where that is unknown.
        ended: If set, no load is started.
        load: Whether to load the GPUs.
    """
    seconds: dict[Source, float] = {}
    log, log_error = _timed("kernel log", host.read_kernel_log, seconds)
    rest, nvml_error = _timed("nvml", host.gpus, seconds)
    lines = tuple(log or ())
    run_start = next((index for index, line in enumerate(lines) if line.endswith(marker_line(marker))), 0)
    start = time.monotonic()
    gpus = _under_load(host, rest or []) if load and not ended.is_set() else ()
    seconds["load"] = time.monotonic() - start
    return Readings(
        gpus=gpus or tuple(map(GpuReadings, rest or [])),
        older_log=lines[:run_start],
        kernel_log=lines[run_start:],
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
    """Load all GPUs that answer, in parallel, and sample them until the load ends."""
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
        return []  # there is a sample at rest, and the load's own result shows a GPU that was lost under load
