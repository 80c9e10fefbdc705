"""QA's checks: pure functions from readings and floors to findings, in two tables. To add a check, add an entry.

A finding with `ok` None could not be measured, and a node with such a finding does not pass. A check that a plan
switches off, or that needs a load where QA only reads, gives no finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from gameday.agent.qa.gpu_models import GPU_MODELS, GpuModel
from gameday.agent.qa.readings import GpuReadings, Readings, Source
from gameday.agent.task import QaResult
from gameday.host.clock_reasons import SLOWDOWN_MASK, named
from gameday.plan.qa import QaFloors
from gameday.xid.catalogue import Remedy
from gameday.xid.decide import Response, decide
from gameday.xid.lines import KernelEvent, Kind, recognise

UNCORRECTABLE_ROWS_MAX = 512
"""The most uncorrectable rows; Azure's checks fail a GPU with more (docs/sources.md, Pass criteria)."""
SM_CLOCK_FRACTION = 0.5
"""Least SM clock under load, as a share of its maximum. Our own figure: an H100 runs a GEMM at the power cap at about
0.7, and a locked clock is far lower."""
PEER_SHARE = 0.9
"""Least share of the median of the node's other GPUs. Healthy GPUs differ by 5 % and more (docs/sources.md, H100
figures)."""
TEMPERATURE_SPREAD_C = 15.0
"""Most degrees above the median of the node's other GPUs. Our own figure: in an air-cooled server the GPUs behind
others are some degrees hotter, and a blocked fan or lost contact adds more."""
EVEN_HEAT_AFTER_S = 20.0
"""Seconds of burn-in after which the heat of earlier work no longer counts. Our own figure: a GPU that comes from
560 W is some 30 °C above an idle one, and a third of that is left after the 20 s in which the model's heat settles."""
_BUSY_PCT = 5
"""Utilisation above which a GPU counts as shared with other work, percent."""
_POWER_LIMIT_TOLERANCE_W = 1.0
"""Boards round a power limit to their own steps."""
_MIB = 1 << 20
_TWO = 2
_UNLISTED = GpuModel()
_SWITCH = {True: "on", False: "off"}


@dataclass(frozen=True)
class Finding:
    """A value that was read, and whether it is within its bound."""

    value: float | str | None
    bound: str
    """The bound as people read it, in the check's unit."""
    ok: bool | None
    """True if the check passed; None if the value could not be measured."""
    detail: str = ""


@dataclass(frozen=True)
class NodeCheck:
    """A check of the node as a whole."""

    name: str
    unit: str
    source: Source
    judge: Callable[[Readings, QaFloors], Finding | None]
    """The function that judges the readings; it returns None if QA was not asked for this."""


@dataclass(frozen=True)
class GpuCheck:
    """A check of each GPU. A lost GPU gets only the check `gpu-answers`."""

    name: str
    unit: str
    source: Source
    judge: Callable[[GpuReadings, QaFloors], Finding | None]
    """The function that judges the readings; it returns None if the plan switched the check off."""


def judge(readings: Readings, floors: QaFloors) -> Iterator[QaResult]:
    """Yield the results of all checks: first of the node, then GPU by GPU, then those of `dcgmi diag`, test by test."""
    for node_check in NODE_CHECKS:
        if finding := node_check.judge(readings, floors):
            yield _result(node_check, None, finding, readings)
    for gpu in readings.gpus:
        for check in GPU_CHECKS if not gpu.rest.lost else GPU_CHECKS[:1]:
            if finding := check.judge(gpu, floors):
                yield _result(check, gpu.rest.index, finding, readings)
    for test in readings.diag.ran if readings.diag else ():
        finding = Finding(test.status, "pass", test.ok, test.detail)
        yield _result(NodeCheck(f"dcgm-{test.test}", "", "dcgm diag", _dcgm_diag), test.gpu, finding, readings)


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

    Older events are only mentioned: the node was in service with them.
    """
    bound = "= 0 quarantining"
    if readings.log_error:
        return Finding(None, bound, None, readings.log_error)
    unhealed, older = _unhealed(readings.kernel_log), _unhealed(readings.older_log)
    details = [f"{event.kind} {event.code or event.name} on {event.pci}: {reason}" for event, reason in unhealed[:3]]
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
    """Judge the limit by the plan's floor, or by the board's default if there is none."""
    limit, default = gpu.rest.power_limit_w, gpu.rest.power_limit_default_w
    least = floors.power_limit_w or default
    if limit is None or least is None:
        return Finding(limit, "", None, "NVML does not report the power limit of this GPU, or its default")
    bound = f">= {least:g}" if floors.power_limit_w else f">= {least:g} (its default)"
    return Finding(limit, bound, limit >= least - _POWER_LIMIT_TOLERANCE_W)


def _memory_free(gpu: GpuReadings, floors: QaFloors) -> Finding | None:
    """Judge the sample at rest, because the load itself takes memory."""
    if floors.memory_free_mib is None:
        return None
    bound, used, total = f">= {floors.memory_free_mib}", gpu.rest.memory_used_bytes, gpu.rest.memory_total_bytes
    if used is None or total is None:
        return Finding(None, bound, None, "NVML does not report the memory of this GPU")
    free = (total - used) // _MIB
    return Finding(free, bound, free >= floors.memory_free_mib, f"of {total // _MIB}")


def _nvlinks(gpu: GpuReadings, floors: QaFloors) -> Finding | None:
    """Judge the number of active links by the plan's floor, or by the model's if the plan has none."""
    least, source = floors.nvlinks, ""
    if least is None and _has_no_nvlinks((gpu, *gpu.peers)):
        return None
    if least is None and (least := _model(gpu).nvlinks) is not None:
        source = f" (floor of {gpu.rest.name})"
    if least is None:
        return None
    active, bound = gpu.rest.nvlinks_active, f">= {least}{source}"
    if active is None and least:
        why = "NVML shows no NVLink of this GPU: if its board has none, write qa.floors.nvlinks: 0"
        return Finding(None, bound, None, why)
    return Finding(active or 0, bound, (active or 0) >= least, f"of {gpu.rest.nvlinks_supported or 0}")


def _has_no_nvlinks(gpus: Sequence[GpuReadings]) -> bool:
    """Return True if NVML knows no NVLink on any of these GPUs, as in a virtual machine that gets GPUs alone.

    A link that is down is one that NVML knows.
    """
    return all(gpu.rest.nvlinks_supported == 0 for gpu in gpus)


def _nvlink_speed(gpu: GpuReadings, floors: QaFloors) -> Finding | None:
    """Judge the common rate of the GPU's active links by the model's; no finding if NVML does not show it."""
    floor, speeds = _model(gpu).nvlink_floor_mbps, gpu.values("nvlink_mbps")
    if floor is None or not speeds:
        return None
    return Finding(min(speeds), f">= {floor:g} (floor of {gpu.rest.name})", min(speeds) >= floor, "of each active link")


def _pcie(field: str, maximum: str, floor_of: Callable[[QaFloors], int | None]) -> Callable[..., Finding]:
    """Return a check of the link by the plan's floor, or by the GPU's own maximum if there is none.

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
                max(values), bound, None, f"only seen at rest, where a link may slow down. {gpu.why_no_load}"
            )
        return Finding(max(values), bound, max(values) >= least)

    return check


def _hw_slowdown(gpu: GpuReadings, floors: QaFloors) -> Finding:
    """Judge every reading: a slowdown at any moment counts, and the finding says when it was first seen."""
    bound = f"& {SLOWDOWN_MASK:#x} = 0 at any time"
    masks = [int(mask) for mask in gpu.values("clocks_event_reasons")]
    if not masks:
        return Finding(None, bound, None, "NVML does not report the clock event reasons of this GPU")
    bits = 0
    for mask in masks:
        bits |= mask
    names = named(bits)
    slowed = [one for one in gpu.burnt if (one.gpu.clocks_event_reasons or 0) & SLOWDOWN_MASK]
    if slowed:
        first, share = slowed[0], len(slowed) / len(gpu.burnt)
        at = "" if first.gpu.temperature_c is None else f" at {first.gpu.temperature_c:g} °C"
        names += f": first after {first.seconds:.0f} s{at}, in {share:.0%} of the readings under load"
    return Finding(f"{bits:#x}", bound, not bits & SLOWDOWN_MASK, names)


def _sm_clock(gpu: GpuReadings, floors: QaFloors) -> Finding | None:
    """Judge the lowest clock of the burn-in; at rest it is low to save power.

    The first reading may precede the first kernel, so it does not count if there are others.
    """
    if gpu.burn is None:
        return None
    clocks = [sample.sm_clock_mhz for sample in gpu.loaded if sample.sm_clock_mhz is not None]
    clocks = clocks[1:] or clocks
    top = gpu.rest.sm_clock_max_mhz
    if not clocks or top is None:
        return Finding(None, "", None, gpu.why_no_load or "NVML did not report the SM clock while the load ran")
    bound = f">= {top * SM_CLOCK_FRACTION:.0f} all the time under load"
    return Finding(min(clocks), bound, min(clocks) >= top * SM_CLOCK_FRACTION, f"maximum {top:g}")


def _temperature(gpu: GpuReadings, floors: QaFloors) -> Finding | None:
    """Judge the highest temperature by the plan's limit or the GPU's own, the lower of the two."""
    most, source = floors.temperature_max_c, ""
    if most is None:
        return None
    own = gpu.rest.max_operating_c or _model(gpu).max_operating_c
    if own is not None and own < most:
        most, source = own, ", its highest operating temperature"
    bound = f"<= {most:g} at any time{source}"
    values = gpu.values("temperature_c")
    if not values:
        return Finding(None, bound, None, "NVML does not report this GPU's temperature")
    return Finding(max(values), bound, max(values) <= most)


def _temperature_spread(gpu: GpuReadings, floors: QaFloors) -> Finding | None:
    """Compare the highest temperature of the burn-in with that of the other GPUs, which had the same work and air.

    The first seconds do not count: they show the heat of earlier work.
    """
    highest = _highest_temperature(gpu)
    others = [value for peer in gpu.peers if (value := _highest_temperature(peer)) is not None]
    if highest is None or not others:
        return None
    middle = median(others)
    bound = f"<= {TEMPERATURE_SPREAD_C:g} above the other GPUs"
    return Finding(highest - middle, bound, highest - middle <= TEMPERATURE_SPREAD_C, f"{highest:g} and {middle:g} °C")


def _highest_temperature(gpu: GpuReadings) -> float | None:
    warm = [one.gpu.temperature_c for one in gpu.burnt if one.seconds >= EVEN_HEAT_AFTER_S]
    return max((value for value in warm if value is not None), default=None)


@dataclass(frozen=True)
class _Rate:
    """A rate that a load measured, and where to find its floors."""

    of: Callable[[GpuReadings], float | None]
    in_plan: Callable[[QaFloors], float | None]
    of_model: Callable[[GpuModel], float | None]
    why_not: Callable[[GpuReadings], str]


def _model(gpu: GpuReadings) -> GpuModel:
    """Return the published figures of the GPU's model; all None if it is not listed."""
    return GPU_MODELS.get(gpu.rest.name, _UNLISTED)


def _against_floor(rate: _Rate) -> Callable[[GpuReadings, QaFloors], Finding | None]:
    """Return a check of a rate by the first floor there is: the plan's, the model's, or the node's other GPUs'."""

    def check(gpu: GpuReadings, floors: QaFloors) -> Finding | None:
        if gpu.burn is None:
            return None
        floor, source = rate.in_plan(floors), ""
        if floor is None and (floor := rate.of_model(_model(gpu))) is not None:
            source = f" (floor of {gpu.rest.name})"
        if floor is None and (others := _others(rate, gpu)):
            floor, source = PEER_SHARE * median(others), f" ({PEER_SHARE:.0%} of the node's other GPUs)"
        value = rate.of(gpu)
        if floor is None:
            why = f"no floor is known for {gpu.rest.name}, and no other GPU of it was measured: write one in qa.floors"
            return Finding(value, "", None, why)
        bound = f">= {floor:.4g}{source}"
        if value is None:
            return Finding(None, bound, None, rate.why_not(gpu))
        busy_pct = gpu.rest.utilization_pct
        is_shared = value < floor and busy_pct is not None and busy_pct > _BUSY_PCT
        detail = f"the GPU was {busy_pct:.0f} % busy before the load, so its users had their share" if is_shared else ""
        return Finding(value, bound, value >= floor, detail)

    return check


def _against_peers(rate: _Rate) -> Callable[[GpuReadings, QaFloors], Finding | None]:
    """Return a check of a rate by the node's other GPUs of the same model; no finding if there are none."""

    def check(gpu: GpuReadings, floors: QaFloors) -> Finding | None:
        value, others = rate.of(gpu), _others(rate, gpu)
        if value is None or not others:
            return None  # the check by the floor says why
        share = value / median(others)
        return Finding(
            round(100 * share, 1),
            f">= {100 * PEER_SHARE:g} of the node's other GPUs",
            share >= PEER_SHARE,
            f"{value:g} and {median(others):g}",
        )

    return check


def _others(rate: _Rate, gpu: GpuReadings) -> list[float]:
    return [value for peer in gpu.peers if (value := rate.of(peer)) is not None]


def _correct(gpu: GpuReadings, floors: QaFloors) -> Finding | None:
    """Judge all products that were compared, in the burn-in and in the load after it."""
    if gpu.burn is None:
        return None
    report = gpu.burn.last
    if report is None or (gpu.load is None and not report.products):
        return Finding(None, "= 0", None, gpu.why_no_load)
    wrong = report.wrong_results + (gpu.load.wrong_results if gpu.load else 0)
    detail = "silent data corruption: elements differ between products of the same factors" if wrong else ""
    return Finding(wrong, "= 0", wrong == 0, detail)


def _memory_pattern(gpu: GpuReadings, floors: QaFloors) -> Finding | None:
    """Judge whether every word of the free memory kept every pattern."""
    if gpu.burn is None:
        return None
    report = gpu.memory.report if gpu.memory else None
    if report is None or not report.proved_bytes:
        why = gpu.memory.why_not if gpu.memory else gpu.why_no_load
        return Finding(None, "= 0", None, why or "no pattern was written")
    proved = f"{report.proved_bytes // _MIB} MiB of free memory"
    where = "" if report.wrong_at is None else f", the first {report.wrong_at:#x} bytes into them"
    return Finding(report.wrong_words, "= 0", report.wrong_words == 0, proved + where)


def _agreement(gpu: GpuReadings, floors: QaFloors) -> Finding | None:
    """Compare the first product's bits with those of the other GPUs, which had the same factors.

    There is no finding if there is no other GPU.
    """
    digests = Counter(one.burn.last.digest for one in (gpu, *gpu.peers) if one.burn and one.burn.last)
    own = gpu.burn.last.digest if gpu.burn and gpu.burn.last else ""
    if not own or digests.total() - digests[""] < _TWO:
        return None
    digest, times = digests.most_common(1)[0]
    bound = "as on the other GPUs"
    if 2 * times <= digests.total():
        return Finding(own, bound, None, "the GPUs disagree about the same product, and no result has a majority")
    return Finding(own, bound, own == digest, "" if own == digest else f"{times} other GPUs have {digest}")


def _burn_in(readings: Readings, floors: QaFloors) -> Finding | None:
    """Judge whether every GPU computed for the whole time: the other checks of load depend on it."""
    if readings.burn_in_s is None:
        return None
    bound = f">= {readings.burn_in_s:g} on every GPU"
    burns = {gpu.rest.index: gpu.burn for gpu in readings.gpus if gpu.burn}
    if not burns:
        return Finding(None, bound, None, readings.nvml_error or "no GPU answered, so none computed")
    whys = [f"GPU {gpu}: {burn.why_not}" for gpu, burn in burns.items() if burn.why_not]
    shortest = round(min(burn.seconds for burn in burns.values()), 1)
    if whys:
        return Finding(shortest, bound, None, whys[0] + (f"; {len(whys) - 1} more alike" if whys[1:] else ""))
    return Finding(shortest, bound, shortest >= round(readings.burn_in_s, 1))


def _all_reduce_sums(readings: Readings, floors: QaFloors) -> Finding | None:
    """Judge whether all GPUs had the same, right sums, which tests NVLink, NVSwitch and the GPUs' additions."""
    if readings.all_reduce is None:
        return None
    report = readings.all_reduce.report
    if report is None:
        return Finding(None, "= 0", None, readings.all_reduce.why_not)
    wrong = report.wrong_sums
    return Finding(wrong, "= 0", wrong == 0, "silent data corruption between the GPUs" if wrong else "")


def _all_reduce_rate(readings: Readings, floors: QaFloors) -> Finding | None:
    """Judge the bus bandwidth by the plan's floor; if it has none, by that of the model that all GPUs share."""
    if readings.all_reduce is None:
        return None
    floor, source, names = floors.all_reduce_gbs, "", {gpu.rest.name for gpu in readings.gpus}
    if floor is None and floors.nvlinks != 0 and not _has_no_nvlinks(readings.gpus) and len(names) == 1:
        first = readings.gpus[0]
        floor, source = _model(first).all_reduce_floor_gbs, f" (floor of {first.rest.name})"
    if floor is None:
        return None
    bound, report = f">= {floor:.4g}{source}", readings.all_reduce.report
    if report is None or report.bus_gbs is None:
        return Finding(None, bound, None, readings.all_reduce.why_not or "no bandwidth was measured")
    return Finding(report.bus_gbs, bound, report.bus_gbs >= floor, f"over {len(readings.gpus)} GPUs")


def _dcgm_diag(readings: Readings, floors: QaFloors) -> Finding | None:
    """Judge whether the level was proved. A test that DCGM left out is named, and does not pass."""
    diag = readings.diag
    if diag is None:
        return None
    bound = f"all of level {diag.level} pass"
    if diag.why_unproved:
        return Finding(None, bound, None, diag.why_unproved)
    oks = [result.ok for result in diag.ran]
    ok = False if False in oks else None if None in oks else True
    left_out = f"left out by DCGM: {diag.left_out}" if diag.left_out else ""
    return Finding(f"{oks.count(True)} of {len(oks)}", bound, ok, left_out)


_GEMM = _Rate(
    lambda gpu: gpu.load.gemm_tflops if gpu.load else None,
    lambda floors: floors.gemm_tflops,
    lambda model: model.gemm_floor_tflops,
    lambda gpu: gpu.why_no_load or "no load ran",
)
_MEMORY = _Rate(
    lambda gpu: gpu.load.memory_bandwidth_gbs if gpu.load else None,
    lambda floors: floors.memory_bandwidth_gbs,
    lambda model: model.memory_floor_gbs,
    lambda gpu: gpu.why_no_load or "no load ran",
)
_LINK = _Rate(
    lambda gpu: gpu.link.report.copy_gbs if gpu.link and gpu.link.report else None,
    lambda floors: floors.link_bandwidth_gbs,
    lambda model: model.link_floor_gbs,
    lambda gpu: (gpu.link.why_not if gpu.link else gpu.why_no_load) or "no copy ran",
)

NODE_CHECKS = (
    NodeCheck("gpu-count", "", "nvml", _gpu_count),
    NodeCheck("burn-in", "s", "burn-in", _burn_in),
    NodeCheck("all-reduce-rate", "GB/s", "all-reduce", _all_reduce_rate),
    NodeCheck("all-reduce-sums", "wrong", "all-reduce", _all_reduce_sums),
    NodeCheck("dcgm-diag", "results", "dcgm diag", _dcgm_diag),
    NodeCheck("kernel-log", "", "kernel log", _kernel_log),
)

# The criteria to pass are in docs/sources.md, Pass criteria, unless another source is named.
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
    GpuCheck("nvlink-speed", "MB/s", "nvml", _nvlink_speed),
    GpuCheck("pcie-width", "lanes", "nvml", _pcie("pcie_width", "pcie_width_max", lambda floors: floors.pcie_width)),
    GpuCheck(
        "pcie-generation",
        "",
        "nvml",
        _pcie("pcie_generation", "pcie_generation_max", lambda floors: floors.pcie_generation),
    ),
    GpuCheck("hw-slowdown", "", "nvml", _hw_slowdown),
    GpuCheck("sm-clock", "MHz", "burn-in", _sm_clock),
    GpuCheck("temperature", "C", "nvml", _temperature),
    GpuCheck("temperature-spread", "C", "burn-in", _temperature_spread),
    GpuCheck("gemm-rate", "TFLOP/s FP16", "load", _against_floor(_GEMM)),
    GpuCheck("gemm-spread", "%", "load", _against_peers(_GEMM)),
    GpuCheck("memory-bandwidth", "GB/s", "load", _against_floor(_MEMORY)),
    GpuCheck("memory-spread", "%", "load", _against_peers(_MEMORY)),
    GpuCheck("link-bandwidth", "GB/s", "link", _against_floor(_LINK)),
    GpuCheck("link-spread", "%", "link", _against_peers(_LINK)),
    GpuCheck("gemm-results", "wrong", "burn-in", _correct),
    GpuCheck("memory-pattern", "wrong words", "memory", _memory_pattern),
    GpuCheck("gemm-agreement", "", "burn-in", _agreement),
)
