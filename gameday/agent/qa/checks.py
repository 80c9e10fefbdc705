"""QA's checks: pure functions from readings and floors to findings, in two tables. To add a check, add an entry.

A finding with `ok` None could not be measured, and a node with such a finding
does not pass. A floor of None switches its check off: there is no finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from gameday.agent.qa.readings import GpuReadings, Readings, Source
from gameday.agent.task import QaResult
from gameday.plan.qa import QaFloors
from gameday.xid.catalogue import Remedy
from gameday.xid.decide import Response, decide
from gameday.xid.lines import KernelEvent, Kind, recognise

HW_SLOWDOWN_MASK = 0xE8
"""Clock event reasons HW slowdown, SW thermal, HW thermal, HW power brake (docs/sources.md, Pass criteria)."""
UNCORRECTABLE_ROWS_MAX = 512
"""The most uncorrectable rows; Azure's checks fail a GPU with more (docs/sources.md, Pass criteria)."""
SM_CLOCK_FRACTION = 0.5
"""Least SM clock under load, as a share of its maximum. Our own figure: an H100 runs a GEMM at the power cap at about
0.7, and a locked clock is far lower."""
_BUSY_PCT = 5
"""Utilisation above which a GPU counts as shared with others' work, percent."""
_POWER_LIMIT_TOLERANCE_W = 1.0
"""Boards round a power limit to their own steps."""
_MIB = 1 << 20
_SWITCH = {True: "on", False: "off"}
_REASONS = {0x8: "HW slowdown", 0x20: "SW thermal slowdown", 0x40: "HW thermal slowdown", 0x80: "HW power brake"}


@dataclass(frozen=True)
class Finding:
    """A value that was read, and whether it is within its bound."""

    value: float | str | None
    bound: str
    """The bound as people read it, in the check's unit."""
    ok: bool | None
    """True if the check is passed; None if the value could not be measured."""
    detail: str = ""


@dataclass(frozen=True)
class NodeCheck:
    """A check of the node as a whole."""

    name: str
    unit: str
    source: Source
    judge: Callable[[Readings, QaFloors], Finding]


@dataclass(frozen=True)
class GpuCheck:
    """A check of each GPU. A lost GPU gets only the check `gpu-answers`."""

    name: str
    unit: str
    source: Source
    judge: Callable[[GpuReadings, QaFloors], Finding | None]
    """The function that judges the readings; it returns None where the plan switched the check off."""


def judge(readings: Readings, floors: QaFloors) -> Iterator[QaResult]:
    """Yield the results of all checks, first of the node, then GPU by GPU."""
    for node_check in NODE_CHECKS:
        yield _result(node_check, None, node_check.judge(readings, floors), readings)
    for gpu in readings.gpus:
        for check in GPU_CHECKS if not gpu.rest.lost else GPU_CHECKS[:1]:
            if finding := check.judge(gpu, floors):
                yield _result(check, gpu.rest.index, finding, readings)


def _result(check: NodeCheck | GpuCheck, gpu: int | None, finding: Finding, readings: Readings) -> QaResult:
    return QaResult(
        check=check.name,
        gpu=gpu,
        value=finding.value,
        unit=check.unit,
        bound=finding.bound,
        ok=finding.ok,
        seconds=readings.seconds.get(check.source, 0.0),
        detail=finding.detail,
    )


def _gpu_count(readings: Readings, floors: QaFloors) -> Finding:
    expected = floors.gpus or readings.expected_gpus
    bound = f"= {expected}" if expected else ">= 1"
    if readings.nvml_error:
        return Finding(None, bound, None, readings.nvml_error)
    count = len(readings.gpus)
    return Finding(count, bound, count == expected if expected else count > 0)


def _kernel_log(readings: Readings, floors: QaFloors) -> Finding:
    """Count the quarantining events since the run began that no later GPU reset of ours has healed.

    Older events are only mentioned: the node was in service with them in its log.
    """
    bound = "= 0 quarantining"
    if readings.log_error:
        return Finding(None, bound, None, readings.log_error)
    unhealed, older = _unhealed(readings.kernel_log), _unhealed(readings.older_log)
    details = [f"{event.kind} {event.code} on {event.pci}: {reason}" for event, reason in unhealed[:3]]
    details += [f"{len(older)} quarantining from before this run"] if older else []
    return Finding(len(unhealed), bound, not unhealed, "; ".join(details))


def _unhealed(log: Iterable[str]) -> list[tuple[KernelEvent, str]]:
    """Return the quarantining events that no later GPU reset has healed, each with its reason."""
    unhealed: list[tuple[KernelEvent, str]] = []
    for event in filter(None, map(recognise, log)):
        if event.kind is Kind.GPU_RESET and event.success:
            unhealed = [(old, why) for old, why in unhealed if old.pci != event.pci or not _is_healed_by_reset(old)]
        elif (decision := decide(event)).response is Response.QUARANTINE:
            unhealed.append((event, decision.reason))
    return unhealed


def _is_healed_by_reset(event: KernelEvent) -> bool:
    return decide(event).remedy in (Remedy.GPU_RESET, Remedy.NONE)


def _answers(gpu: GpuReadings, floors: QaFloors) -> Finding:
    lost = any(sample.lost for sample in gpu.samples)
    return Finding("lost" if lost else "yes", "yes", not lost, "NVML: GPU is lost" if lost else "")


def _at_most(field: str, limit: int) -> Callable[[GpuReadings, QaFloors], Finding]:
    def check(gpu: GpuReadings, floors: QaFloors) -> Finding:
        bound = f"<= {limit}" if limit else "= 0"
        values = gpu.values(field)
        if not values:
            return Finding(None, bound, None, f"NVML does not report {field} of this GPU")
        return Finding(max(values), bound, max(values) <= limit)

    return check


def _never(field: str) -> Callable[[GpuReadings, QaFloors], Finding]:
    def check(gpu: GpuReadings, floors: QaFloors) -> Finding:
        values = gpu.values(field)
        if not values:
            return Finding(None, "no", None, f"NVML does not report {field} of this GPU")
        return Finding("yes" if any(values) else "no", "no", not any(values))

    return check


def _ecc(gpu: GpuReadings, floors: QaFloors) -> Finding | None:
    """Judge the current and the pending mode: a GPU that loses ECC with its next reset is not good."""
    if floors.ecc is None:
        return None
    now, pending = gpu.rest.ecc_mode, gpu.rest.ecc_mode_pending
    bound = f"{_SWITCH[floors.ecc]}, also after a reset"
    if now is None or pending is None:
        return Finding(None, bound, None, "NVML does not report the ECC mode of this GPU")
    value = _SWITCH[now] if now == pending else f"{_SWITCH[now]}, {_SWITCH[pending]} after a reset"
    return Finding(value, bound, now == pending == floors.ecc)


def _persistence(gpu: GpuReadings, floors: QaFloors) -> Finding | None:
    if floors.persistence is None:
        return None
    value, bound = gpu.rest.persistence_mode, _SWITCH[floors.persistence]
    if value is None:
        return Finding(None, bound, None, "NVML does not report the persistence mode of this GPU")
    return Finding(_SWITCH[value], bound, value == floors.persistence)


def _power_limit(gpu: GpuReadings, floors: QaFloors) -> Finding:
    """Judge the limit by the floor; without one, by the board's default."""
    limit, default = gpu.rest.power_limit_w, gpu.rest.power_limit_default_w
    least = floors.power_limit_w or default
    if limit is None or least is None:
        return Finding(limit, "", None, "NVML does not report the power limit of this GPU, or its default")
    bound = f">= {least:g}" if floors.power_limit_w else f">= {least:g} (its default)"
    return Finding(limit, bound, limit >= least - _POWER_LIMIT_TOLERANCE_W)


def _memory_free(gpu: GpuReadings, floors: QaFloors) -> Finding | None:
    """Judge the sample at rest, because the load takes memory of its own."""
    if floors.memory_free_mib is None:
        return None
    bound, used, total = f">= {floors.memory_free_mib}", gpu.rest.memory_used_bytes, gpu.rest.memory_total_bytes
    if used is None or total is None:
        return Finding(None, bound, None, "NVML does not report the memory of this GPU")
    free = (total - used) // _MIB
    return Finding(free, bound, free >= floors.memory_free_mib, f"of {total // _MIB}")


def _nvlinks(gpu: GpuReadings, floors: QaFloors) -> Finding | None:
    if floors.nvlinks is None:
        return None
    active = gpu.rest.nvlinks_active
    if active is None:
        return Finding(None, f">= {floors.nvlinks}", None, "NVML knows no NVLink on this GPU")
    return Finding(active, f">= {floors.nvlinks}", active >= floors.nvlinks, f"of {gpu.rest.nvlinks_supported}")


def _pcie(field: str, maximum: str, floor_of: Callable[[QaFloors], int | None]) -> Callable[..., Finding]:
    """Return a check of the link by the floor; without one, by the GPU's own maximum.

    The best sample counts, because an idle link may slow down to save power.
    """

    def check(gpu: GpuReadings, floors: QaFloors) -> Finding:
        floor = floor_of(floors)
        least = floor if floor is not None else getattr(gpu.rest, maximum)
        values = gpu.values(field)
        if least is None or not values:
            return Finding(max(values, default=None), "", None, f"NVML does not report {field} or its maximum")
        bound = f">= {least}" if floor is not None else f">= {least} (its maximum)"
        if max(values) < least and not gpu.loaded:
            return Finding(
                max(values), bound, None, f"only seen at rest, where a link may slow down. {_why_no_load(gpu)}"
            )
        return Finding(max(values), bound, max(values) >= least)

    return check


def _why_no_load(gpu: GpuReadings) -> str:
    return f"No load ran: {gpu.load.detail}" if gpu.load and gpu.load.detail else ""


def _hw_slowdown(gpu: GpuReadings, floors: QaFloors) -> Finding:
    bound = f"& {HW_SLOWDOWN_MASK:#x} = 0"
    masks = [int(mask) for mask in gpu.values("clocks_event_reasons")]
    if not masks:
        return Finding(None, bound, None, "NVML does not report the clock event reasons of this GPU")
    bits = 0
    for mask in masks:
        bits |= mask
    names = ", ".join(name for bit, name in _REASONS.items() if bits & bit)
    return Finding(f"{bits:#x}", bound, not bits & HW_SLOWDOWN_MASK, names)


def _sm_clock(gpu: GpuReadings, floors: QaFloors) -> Finding | None:
    """Judge the clock under load only, because at rest it is low to save power."""
    if not gpu.load_ran:
        return None
    clocks = [sample.sm_clock_mhz for sample in gpu.loaded if sample.sm_clock_mhz is not None]
    top = gpu.rest.sm_clock_max_mhz
    if not clocks or top is None:
        return Finding(None, "", None, "NVML did not report the SM clock while the load ran")
    return Finding(
        max(clocks),
        f">= {top * SM_CLOCK_FRACTION:.0f} under load",
        max(clocks) >= top * SM_CLOCK_FRACTION,
        f"maximum {top:g}",
    )


def _temperature(gpu: GpuReadings, floors: QaFloors) -> Finding | None:
    if floors.temperature_max_c is None:
        return None
    bound = f"<= {floors.temperature_max_c:g}"
    values = gpu.values("temperature_c")
    if not values:
        return Finding(None, bound, None, "NVML does not report this GPU's temperature")
    return Finding(max(values), bound, max(values) <= floors.temperature_max_c)


def _rate(
    field: str, floor_of: Callable[[QaFloors], float | None]
) -> Callable[[GpuReadings, QaFloors], Finding | None]:
    """Return a check of a figure of the load by its floor; without a floor the figure is only reported."""

    def check(gpu: GpuReadings, floors: QaFloors) -> Finding | None:
        floor = floor_of(floors)
        value = getattr(gpu.load, field) if gpu.load else None
        if floor is None:
            return None if value is None else Finding(value, "", ok=True, detail="no floor in the plan")
        if value is None:
            return Finding(None, f">= {floor:g}", None, _why_no_load(gpu) or "no load ran")
        busy_pct = gpu.rest.utilization_pct
        is_shared = value < floor and busy_pct is not None and busy_pct > _BUSY_PCT
        detail = f"the GPU was {busy_pct:.0f} % busy before the load, so its users had their share" if is_shared else ""
        return Finding(value, f">= {floor:g}", value >= floor, detail)

    return check


def _correct(gpu: GpuReadings, floors: QaFloors) -> Finding | None:
    if gpu.load is None or not gpu.load_ran:
        return None
    wrong = gpu.load.wrong_results
    return Finding(
        wrong, "= 0", wrong == 0, "silent data corruption: elements differ from the reference" if wrong else ""
    )


NODE_CHECKS = (
    NodeCheck("gpu-count", "", "nvml", _gpu_count),
    NodeCheck("kernel-log", "", "kernel log", _kernel_log),
)

# The criteria to pass are in docs/sources.md, Pass criteria, where no other source is named.
GPU_CHECKS = (
    GpuCheck("gpu-answers", "", "nvml", _answers),
    GpuCheck("ecc-double-bit", "errors", "nvml", _at_most("ecc_dbe_volatile", 0)),
    GpuCheck("row-remap-pending", "", "nvml", _never("row_remap_pending")),
    GpuCheck("row-remap-failure", "", "nvml", _never("row_remap_failure")),
    GpuCheck("remapped-rows", "rows", "nvml", _at_most("remapped_rows_uncorrectable", UNCORRECTABLE_ROWS_MAX)),
    GpuCheck("ecc-mode", "", "nvml", _ecc),
    GpuCheck("persistence-mode", "", "nvml", _persistence),
    GpuCheck("power-limit", "W", "nvml", _power_limit),
    GpuCheck("memory-free", "MiB", "nvml", _memory_free),
    GpuCheck("nvlinks-active", "links", "nvml", _nvlinks),
    GpuCheck("pcie-width", "lanes", "nvml", _pcie("pcie_width", "pcie_width_max", lambda floors: floors.pcie_width)),
    GpuCheck(
        "pcie-generation",
        "",
        "nvml",
        _pcie("pcie_generation", "pcie_generation_max", lambda floors: floors.pcie_generation),
    ),
    GpuCheck("hw-slowdown", "", "nvml", _hw_slowdown),
    GpuCheck("sm-clock", "MHz", "load", _sm_clock),
    GpuCheck("temperature", "C", "nvml", _temperature),
    GpuCheck("gemm-rate", "TFLOP/s", "load", _rate("gemm_tflops", lambda floors: floors.gemm_tflops)),
    GpuCheck(
        "memory-bandwidth", "GB/s", "load", _rate("memory_bandwidth_gbs", lambda floors: floors.memory_bandwidth_gbs)
    ),
    GpuCheck("gemm-results", "wrong", "load", _correct),
)
