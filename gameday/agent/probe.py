"""Role probe: measure this pod's GPUs under full load, without a verdict, and leave at once if somebody needs them.

The device plugin gave the pod its GPUs, so Kubernetes counts them as free. A process outside Kubernetes shows only in
the GPU's memory: the probe then ends, and its figures do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from gameday.agent.context import Context
from gameday.agent.own_gpus import own_gpus
from gameday.agent.qa.burn_in import GpuBurn, burn_in
from gameday.agent.qa.readings import WorkOutcome, measure_all, measure_all_reduce, measure_link
from gameday.agent.task import AgentResult, ProbedNote, ProbeTask
from gameday.errors import HostError
from gameday.host.base import GpuSample, LoadResult
from gameday.host.clock_reasons import POWER_CAP, SLOWDOWNS
from gameday.values.results import Cleanliness

_IDLE_PCT = 5.0
"""Highest utilisation of an idle GPU, percent; above it, QA counts a GPU as shared."""
_STRANGERS_BYTES = 200 << 20
"""Growth of a GPU's used memory that must come from another process: our own load allocates all its memory before it
begins. A CUDA context alone takes more on a data-centre GPU; monitors, which only read NVML, take none."""
_MAX_REASON_CHARACTERS = 600
_NAMES = SLOWDOWNS | {POWER_CAP: "power cap"}


def probe(task: ProbeTask, context: Context, environment: Mapping[str, str]) -> AgentResult:
    """Measure, and print a note for each GPU. Never raises HostError.

    Args:
        task: How long to load the GPUs.
        context: The host, the reason to end, and the pod's log.
        environment: The container's environment.
    """
    try:
        notes = _probe(task, context, environment)
        error = next((note.why_not for note in notes if note.why_not), "")
    except HostError as failed:
        notes, error = [], str(failed)
    stopped = context.ending.event.is_set()
    for note in notes if not stopped else ():
        context.print_note(note)
    return AgentResult(
        role=task.role,
        ok=bool(notes) and not error and not stopped,
        cleanliness=Cleanliness.CLEAN,
        ended_by=context.ending.reason,
        error="yielded: the pod was told to end" if stopped else error,
        evidence=(f"{sum(not note.why_not for note in notes)} of {task.gpus} GPUs measured",),
    )


def _probe(task: ProbeTask, context: Context, environment: Mapping[str, str]) -> list[ProbedNote]:
    """Return the measurement of each of the pod's GPUs. Raises HostError."""
    host, ended = context.host, context.ending.event
    uuids = own_gpus(host, environment, task.gpus).uuids
    rest = [sample for sample in host.gpus() if sample.uuid in uuids]
    if why := _why_busy(rest):
        return [_note(gpu, why_not=why) for gpu in rest]
    seconds = task.virtual_burn_in_s if host.is_virtual else task.burn_in_s
    burns = burn_in(host, rest, seconds, task.temperature_max_c, ended, why_yield=_Strangers(rest))
    ready = [gpu for gpu in rest if gpu.index in burns and not burns[gpu.index].why_not and not ended.is_set()]
    loads = measure_all(host, ready)
    links = {gpu.index: measure_link(host, gpu) for gpu in ready if not ended.is_set()}
    together = None
    if len(rest) > 1 and len(ready) == len(rest) and not ended.is_set():
        together = measure_all_reduce(host, rest, burns)
    return [_measured(gpu, burns, loads, links, together, len(rest)) for gpu in rest]


def _why_busy(rest: Sequence[GpuSample]) -> str:
    for gpu in rest:
        if (gpu.utilization_pct or 0.0) > _IDLE_PCT:
            return f"yielded: GPU {gpu.index} works already ({gpu.utilization_pct:g} % busy), though no pod has it"
    return ""


class _Strangers:
    """The reason to leave: another process is taking memory of one of its GPUs."""

    def __init__(self, rest: Sequence[GpuSample]) -> None:
        self._least: dict[int, int] = {}
        self._own = {gpu.index for gpu in rest}

    def __call__(self, samples: Sequence[GpuSample]) -> str:
        for gpu in samples:
            if gpu.index not in self._own or gpu.memory_used_bytes is None:
                continue
            grown = gpu.memory_used_bytes - self._least.setdefault(gpu.index, gpu.memory_used_bytes)
            if grown > _STRANGERS_BYTES:
                return f"yielded: another process took {grown >> 20} MiB of GPU {gpu.index}"
        return ""


def _measured(
    gpu: GpuSample,
    burns: Mapping[int, GpuBurn],
    loads: Mapping[int, LoadResult],
    links: Mapping[int, WorkOutcome],
    together: WorkOutcome | None,
    gpus: int,
) -> ProbedNote:
    burn, load, link = burns.get(gpu.index), loads.get(gpu.index), links.get(gpu.index)
    if gpu.lost or burn is None:
        return _note(gpu, why_not="NVML says that the GPU is lost")
    if load is None or load.gemm_tflops is None:
        return _note(gpu, why_not=burn.why_not or (load.detail if load else "") or "it was not loaded")
    samples = [moment.gpu for moment in burn.moments]
    settled = samples[len(samples) // 2 :]
    bus = together.report.bus_gbs if together and together.report else None
    reasons = 0
    for sample in settled:
        reasons |= sample.clocks_event_reasons or 0
    if gpu.power_limit_w == gpu.power_limit_default_w:
        reasons &= ~POWER_CAP  # under full load every healthy GPU meets its own limit
    return _note(
        gpu,
        gemm_tflops=load.gemm_tflops,
        memory_gbs=load.memory_bandwidth_gbs,
        link_gbs=link.report.copy_gbs if link and link.report else None,
        nvlink_gbs=_nvlink_gbs(gpu),
        all_reduce_gbs=bus,
        all_reduce_gpus=gpus if bus is not None else 0,
        sm_clock_mhz=_median(sample.sm_clock_mhz for sample in settled),
        temperature_c=max((s.temperature_c for s in samples if s.temperature_c is not None), default=None),
        power_w=_median(sample.power_w for sample in settled),
        slowed_by=tuple(words for bit, words in _NAMES.items() if reasons & bit),
    )


def _nvlink_gbs(gpu: GpuSample) -> float | None:
    if gpu.nvlinks_active is None or gpu.nvlink_mbps is None:
        return None
    return gpu.nvlinks_active * gpu.nvlink_mbps / 1000


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(median(known)) if known else None


def _note(gpu: GpuSample, why_not: str = "", **figures: object) -> ProbedNote:
    fields = {"gpu": gpu.index, "uuid": gpu.uuid, "model": gpu.name, "why_not": why_not[:_MAX_REASON_CHARACTERS]}
    return ProbedNote.model_validate(fields | figures)
