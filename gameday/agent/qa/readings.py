"""QA's readings of a node: NVML at rest and in the burn-in, loads' figures, dcgmi diag, the kernel log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from gameday.agent.mark import marker_line
from gameday.agent.qa.burn_in import GpuBurn, Moment, burn_in
from gameday.agent.qa.dcgm_diag import DcgmDiag, diagnose
from gameday.agent.task import Proof
from gameday.errors import HostError
from gameday.host.base import AllReduce, CopyToGpu, GpuSample, Host, LoadResult, ProveMemory, WorkOrder, WorkReport
from gameday.host.cpus import parse_cpus

T = TypeVar("T")
Source = Literal["nvml", "burn-in", "load", "link", "all-reduce", "memory", "dcgm diag", "kernel log"]

LOAD_S = 1.0
"""Seconds of the measured load after the burn-in, on all GPUs at once: enough for hundreds of GEMMs."""


@dataclass(frozen=True)
class WorkOutcome:
    """The first report of a piece of work; None if it did not run, and `why_not` has the reason."""

    report: WorkReport | None
    why_not: str = ""


@dataclass(frozen=True)
class GpuReadings:
    """The readings of one GPU."""

    rest: GpuSample
    burn: GpuBurn | None = None
    """The burn-in; None if QA only reads."""
    load: LoadResult | None = None
    """The result of the load that follows; None if none was started."""
    link: WorkOutcome | None = None
    """The copy from host memory; None if none was started."""
    memory: WorkOutcome | None = None
    """The patterns in its memory; None if none were written."""
    peers: tuple[GpuReadings, ...] = ()
    """The node's other GPUs of the same model."""

    @property
    def burnt(self) -> tuple[Moment, ...]:
        """The moments of the burn-in; empty if none ran."""
        return tuple(self.burn.moments) if self.burn and self.burn.last else ()

    @property
    def loaded(self) -> tuple[GpuSample, ...]:
        """The samples of the burn-in."""
        return tuple(moment.gpu for moment in self.burnt)

    @property
    def samples(self) -> tuple[GpuSample, ...]:
        """All samples, at rest and in the burn-in, even if the burn-in did not begin."""
        return (self.rest, *(moment.gpu for moment in (self.burn.moments if self.burn else ())))

    @property
    def why_no_load(self) -> str:
        """The reason why no load ran to its end; empty if one did, or none was asked for."""
        if self.burn and self.burn.why_not:
            return self.burn.why_not
        return f"no load ran: {self.load.detail}" if self.load and self.load.gemm_tflops is None else ""

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
    burn_in_s: float | None = None
    """The burn-in that was asked for; None: QA only read."""
    expected_gpus: int | None = None
    all_reduce: WorkOutcome | None = None
    """The all-reduce under load; None: QA only read, or the node has one GPU."""
    diag: DcgmDiag | None = None
    """The run of `dcgmi diag`; None: it was not asked for."""
    nvml_error: str = ""
    """The reason why NVML could not be read; empty if it was."""
    log_error: str = ""
    """The reason why the kernel log could not be read; empty if it was."""


@dataclass(frozen=True)
class Pace:
    """The clock of the burn-in: the machine's, or that of a model that is moved on."""

    clock: Callable[[], float] = time.monotonic
    wait: Callable[[float], object] | None = None


def read_node(
    host: Host,
    marker: str,
    expected_gpus: int | None,
    ended: threading.Event,
    proof: Proof,
    pace: Pace = Pace(),
) -> Readings:
    """Take all readings of a node. Never raises HostError: the readings hold the errors.

    The kernel log is read last, because the load and the diagnosis may make a GPU fail.

    Args:
        host: The host.
        marker: The run's marker. If the kernel log lacks it (a boot empties the ring buffer, a flood of lines
            overwrites it), the whole log counts.
        expected_gpus: Number of GPUs that the node had before; None if that is unknown.
        ended: If set, no load starts, and a running one ends.
        proof: The floors, and the burn-in, which is shorter on a virtual node.
        pace: The clock of the burn-in.
    """
    seconds: dict[Source, float] = {}
    rest, nvml_error = _timed("nvml", host.gpus, seconds)
    asked = None
    if proof.burn_in_s is not None:
        asked = proof.virtual_burn_in_s if host.is_virtual else proof.burn_in_s
    gpus, all_reduce = tuple(map(GpuReadings, rest or [])), None
    if asked is not None and not ended.is_set():
        gpus, all_reduce = _under_load(host, gpus, asked, proof, ended, seconds, pace)
    diag = None
    if proof.dcgm_diag and not ended.is_set():
        level = proof.dcgm_diag
        diag, _ = _timed("dcgm diag", lambda: diagnose(host, level, ended), seconds)
    log, log_error = _timed("kernel log", host.read_kernel_log, seconds)
    lines = tuple(log or ())
    run_start = next((index for index, line in enumerate(lines) if line.endswith(marker_line(marker))), 0)
    return Readings(
        gpus=_with_peers(gpus),
        older_log=lines[:run_start],
        kernel_log=lines[run_start:],
        seconds=seconds,
        burn_in_s=asked,
        expected_gpus=expected_gpus,
        all_reduce=all_reduce,
        diag=diag,
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


def _with_peers(gpus: tuple[GpuReadings, ...]) -> tuple[GpuReadings, ...]:
    def peers(of: GpuReadings) -> tuple[GpuReadings, ...]:
        return tuple(one for one in gpus if one is not of and one.rest.name == of.rest.name and not one.rest.lost)

    return tuple(replace(gpu, peers=peers(gpu)) for gpu in gpus)


def _under_load(
    host: Host,
    gpus: tuple[GpuReadings, ...],
    asked: float,
    proof: Proof,
    ended: threading.Event,
    seconds: dict[Source, float],
    pace: Pace,
) -> tuple[tuple[GpuReadings, ...], WorkOutcome | None]:
    """Burn all GPUs in; then, while they are hot, measure their rates at once, each link alone, and the all-reduce."""
    rest, ceiling_c = [gpu.rest for gpu in gpus], proof.floors.temperature_max_c
    burns, _ = _timed("burn-in", lambda: burn_in(host, rest, asked, ceiling_c, ended, pace.clock, pace.wait), seconds)
    assert burns is not None
    ready = [gpu for gpu in rest if gpu.index in burns and not burns[gpu.index].why_not and not ended.is_set()]
    loads, _ = _timed("load", lambda: measure_all(host, ready), seconds)
    links, _ = _timed(
        "link", lambda: {gpu.index: measure_link(host, gpu) for gpu in ready if not ended.is_set()}, seconds
    )
    summed = None
    if len(gpus) > 1 and not ended.is_set():
        summed, _ = _timed("all-reduce", lambda: measure_all_reduce(host, rest, burns), seconds)
    memory, _ = _timed("memory", lambda: _prove_all(host, [] if ended.is_set() else ready), seconds)
    loaded = tuple(
        GpuReadings(
            gpu,
            burn=burns.get(gpu.index),
            load=(loads or {}).get(gpu.index),
            link=(links or {}).get(gpu.index),
            memory=(memory or {}).get(gpu.index),
        )
        for gpu in rest
    )
    return loaded, summed


def measure_all_reduce(host: Host, gpus: Sequence[GpuSample], burns: dict[int, GpuBurn]) -> WorkOutcome:
    """Sum a message over all these GPUs; if one were left out, the links to it would not be tested."""
    for gpu in gpus:
        if (burn := burns.get(gpu.index)) is None or burn.why_not:
            why = burn.why_not if burn else "it did not compute in the burn-in"
            return WorkOutcome(None, f"an all-reduce needs all GPUs. GPU {gpu.index}: {why}")
    order = AllReduce(gpus=tuple(gpu.index for gpu in gpus))
    return _run_once(host, gpus[0].index, order, "no all-reduce ran")


def measure_all(host: Host, gpus: Sequence[GpuSample]) -> dict[int, LoadResult]:
    """Measure GEMM and copy within the GPU on all GPUs at once; return the results by index."""

    def measure(gpu: GpuSample) -> LoadResult:
        try:
            return host.measure_load(gpu.index, LOAD_S)
        except HostError as error:
            return LoadResult(gpu=gpu.index, gemm_tflops=None, memory_bandwidth_gbs=None, detail=str(error))

    with ThreadPoolExecutor(max(1, len(gpus))) as pool:
        return {result.gpu: result for result in pool.map(measure, gpus)}


def _prove_all(host: Host, gpus: list[GpuSample]) -> dict[int, WorkOutcome]:
    """Write the patterns over the memory of all GPUs at once, while they are hot."""

    def prove(gpu: GpuSample) -> tuple[int, WorkOutcome]:
        return gpu.index, _run_once(host, gpu.index, ProveMemory(), "no pattern was written")

    with ThreadPoolExecutor(max(1, len(gpus))) as pool:
        return dict(pool.map(prove, gpus))


def measure_link(host: Host, gpu: GpuSample) -> WorkOutcome:
    """Measure the copy from the nearest host memory to this GPU, one at a time because GPUs share the host's memory."""
    if not gpu.cpu_affinity:
        return WorkOutcome(None, "NVML does not name the CPUs next to this GPU")
    order = CopyToGpu(cpus=tuple(sorted(parse_cpus(gpu.cpu_affinity))))
    return _run_once(host, gpu.index, order, "no copy ran")


def _run_once(host: Host, gpu: int, order: WorkOrder, why_not: str) -> WorkOutcome:
    """Start work, take its first report, and end it; the reason begins with `why_not` if it does not run."""
    try:
        return WorkOutcome(host.start_work(gpu, order))
    except HostError as error:
        return WorkOutcome(None, f"{why_not}: {error}")
    finally:
        with suppress(HostError):  # the work ends with this agent
            host.end_work(gpu)
