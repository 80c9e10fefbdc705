"""Each QA check passes, fails, or cannot measure, by the readings it is given."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from gameday.agent.qa.burn_in import GpuBurn, Moment
from gameday.agent.qa.checks import GPU_CHECKS, judge
from gameday.agent.qa.gpu_models import GPU_MODELS
from gameday.agent.qa.readings import GpuReadings, Pace, read_node
from gameday.agent.task import Proof, QaResult
from gameday.errors import HostError
from gameday.host.base import AllReduce, Burn, GpuSample, LoadResult, WorkReport
from gameday.plan.qa import QaFloors
from tests.host.fake import FakeHost, healthy_gpu, report

FULL = QaFloors(
    gpus=2,
    gemm_tflops=650,
    memory_bandwidth_gbs=2500,
    pcie_generation=5,
    pcie_width=16,
    nvlinks=18,
    memory_free_mib=4096,
)
LOADED = {
    "sm-clock",
    "gemm-rate",
    "memory-bandwidth",
    "link-bandwidth",
    "gemm-results",
    "memory-pattern",
}
"""Checks of each GPU that only a load can answer."""
MARKER = "20261121-204941-0"
RESET = "gameday-agent: GPU reset executed: PCI:0000:1b:00, success: {}"
XID = "kernel: NVRM: Xid (PCI:0000:1b:00): {}, pid='<unknown>', name=<unknown>, x"


def findings(host: FakeHost, floors: QaFloors = FULL) -> list[QaResult]:
    return list(judge(read_node(host, MARKER, None, threading.Event(), proof(floors)), floors))


def not_ok_at_rest(host: FakeHost, floors: QaFloors = FULL) -> list[tuple[str, int | None, bool | None]]:
    """Return the same for a QA that only reads."""
    return [(one.check, one.gpu, one.ok) for one in read_only(host, floors) if not one.ok]


def read_only(host: FakeHost, floors: QaFloors = FULL) -> list[QaResult]:
    """Return the findings of a QA that puts no load on the GPUs."""
    return list(judge(read_node(host, MARKER, None, threading.Event(), proof(floors, None)), floors))


def proof(floors: QaFloors, burn_in_s: float | None = 300) -> Proof:
    return Proof(floors=floors, burn_in_s=burn_in_s, virtual_burn_in_s=0.02)


def not_ok(host: FakeHost, floors: QaFloors = FULL) -> list[tuple[str, int | None, bool | None]]:
    return [(found.check, found.gpu, found.ok) for found in findings(host, floors) if not found.ok]


def test_a_healthy_node_passes_every_check() -> None:
    found = findings(FakeHost())
    assert all(one.ok for one in found)
    needs_20_s = {"temperature-spread"}
    assert {one.check for one in found if one.gpu == 1} == {check.name for check in GPU_CHECKS} - needs_20_s
    assert all(one.bound for one in found)


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"ecc_dbe_volatile": 1}, "ecc-double-bit"),
        ({"row_remap_pending": True}, "row-remap-pending"),
        ({"row_remap_failure": True}, "row-remap-failure"),
        ({"remapped_rows_uncorrectable": 513}, "remapped-rows"),
        ({"nvlinks_active": 17}, "nvlinks-active"),
        ({"pcie_width": 8}, "pcie-width"),
        ({"pcie_generation": 3}, "pcie-generation"),
        ({"clocks_event_reasons": 0x08}, "hw-slowdown"),
        ({"clocks_event_reasons": 0x81}, "hw-slowdown"),
        ({"temperature_c": 94.0, "max_operating_c": 98.0}, "temperature"),
        ({"temperature_c": 88.0}, "temperature"),
        ({"temperature_c": 84.0, "max_operating_c": 83.0}, "temperature"),
        ({"nvlink_mbps": 25_000}, "nvlink-speed"),
        ({"lost": True}, "gpu-answers"),
        ({"ecc_mode": False, "ecc_mode_pending": False}, "ecc-mode"),
        ({"ecc_mode_pending": False}, "ecc-mode"),
        ({"persistence_mode": False}, "persistence-mode"),
        ({"power_limit_w": 400.0}, "power-limit"),
        ({"memory_used_bytes": 80_000 << 20}, "memory-free"),
    ],
)
def test_one_bad_reading_fails_its_own_check_on_its_own_gpu(changes: dict[str, Any], check: str) -> None:
    host = FakeHost()
    host.samples[1] = healthy_gpu(1, **changes)
    assert (check, 1, False) in not_ok(host)
    assert [(name, gpu) for name, gpu, _ in not_ok_at_rest(host)] == [(check, 1)]


@pytest.mark.parametrize(
    "changes",
    [
        {"remapped_rows_uncorrectable": 512},
        {"clocks_event_reasons": 0x17},
        {"temperature_c": 87.0},  # above it an H100 slows itself down
        {"temperature_c": 90.0, "max_operating_c": 90.0},
        {"temperature_c": 93.0, "max_operating_c": 98.0},
        {"nvlink_mbps": 26_500},
        {"nvlink_mbps": None},
        {"power_w": None},
        {"utilization_pct": None},
        {"power_limit_w": 699.5},
        {"memory_used_bytes": (81559 - 4096) << 20},
    ],
)
def test_a_reading_at_the_bound_passes(changes: dict[str, Any]) -> None:
    host = FakeHost()
    host.samples[1] = healthy_gpu(1, **changes)
    assert not_ok_at_rest(host) == []


@pytest.mark.parametrize(
    ("field", "check"),
    [
        ("ecc_dbe_volatile", "ecc-double-bit"),
        ("row_remap_pending", "row-remap-pending"),
        ("remapped_rows_uncorrectable", "remapped-rows"),
        ("nvlinks_active", "nvlinks-active"),
        ("pcie_width", "pcie-width"),
        ("pcie_generation", "pcie-generation"),
        ("clocks_event_reasons", "hw-slowdown"),
        ("temperature_c", "temperature"),
        ("ecc_mode_pending", "ecc-mode"),
        ("persistence_mode", "persistence-mode"),
        ("power_limit_default_w", "power-limit"),
        ("memory_used_bytes", "memory-free"),
    ],
)
def test_a_field_that_cannot_be_read_is_unknown_and_never_passes(field: str, check: str) -> None:
    host = FakeHost()
    host.samples[1] = healthy_gpu(1, **{field: None})
    assert not_ok(host) == [(check, 1, None)]


@pytest.mark.parametrize(
    ("load", "check"),
    [
        ({"gemm_tflops": 649.0}, "gemm-rate"),
        ({"memory_bandwidth_gbs": 1.0}, "memory-bandwidth"),
        ({"wrong_results": 1}, "gemm-results"),
    ],
)
def test_each_figure_of_the_load_is_judged(load: dict[str, Any], check: str) -> None:
    host = FakeHost()
    good = {"gpu": 0, "gemm_tflops": 700.0, "memory_bandwidth_gbs": 2800.0}
    host.loads[0] = LoadResult.model_validate(good | load)
    assert {one for one in not_ok(host) if one[2] is False} >= {(check, 0, False)}
    assert {gpu for check, gpu, ok in not_ok(host) if ok is False} == {0}


def test_the_detail_of_a_low_rate_names_the_work_on_a_busy_gpu() -> None:
    host = FakeHost()
    host.samples[0] = healthy_gpu(0, utilization_pct=96.0)
    host.loads[0] = LoadResult(gpu=0, gemm_tflops=100, memory_bandwidth_gbs=2800)
    low = next(found for found in findings(host) if found.check == "gemm-rate")
    assert low.unit == "TFLOP/s FP16"
    assert "96 % busy before the load" in low.detail


def test_without_cupy_everything_that_needs_a_load_is_unknown_with_the_reason() -> None:
    host = FakeHost()
    host.refuse["start_work"] = "CuPy cannot be imported"
    found = {(one.check, one.gpu): one for one in findings(host, QaFloors()) if one.ok is None}
    together = {("burn-in", None), ("all-reduce-rate", None), ("all-reduce-sums", None)}
    assert set(found) == together | {(check, gpu) for check in LOADED for gpu in (0, 1)}
    assert all("CuPy cannot be imported" in one.detail for one in found.values())
    assert all(one.ok is not False for one in findings(host, QaFloors()))


def test_a_floor_of_none_switches_its_check_off() -> None:
    host = FakeHost()
    host.samples[1] = healthy_gpu(1, nvlinks_active=0, temperature_c=120.0, ecc_mode=False, persistence_mode=False)
    off = QaFloors(temperature_max_c=None, ecc=None, persistence=None, nvlinks=0)
    assert not_ok_at_rest(host, off) == []
    assert "temperature" not in {one.check for one in findings(host, off) if one.gpu == 1}


def test_nvlinks_are_those_of_the_model_where_the_plan_names_none() -> None:
    host = FakeHost()
    unread = {"nvlinks_active": None, "nvlinks_supported": None, "nvlink_mbps": None}
    host.samples = [
        healthy_gpu(0, name="NVIDIA B200", nvlinks_active=17, nvlink_mbps=53_125),
        healthy_gpu(1, name="NVIDIA A100-SXM4-80GB", nvlinks_active=12, nvlink_mbps=25_781),
        healthy_gpu(2, name="NVIDIA L40S", **unread),
        healthy_gpu(3, name="NVIDIA H200", **unread),
    ]
    links = {"nvlinks-active", "nvlink-speed"}
    assert [one for one in not_ok_at_rest(host, QaFloors()) if one[0] in links] == [
        ("nvlinks-active", 0, False),
        ("nvlinks-active", 3, None),
    ]
    assert ("nvlinks-active", 3, None) not in not_ok_at_rest(host, QaFloors(nvlinks=0))


def test_a_machine_whose_gpus_have_no_nvlinks_is_not_broken_and_one_gpu_without_them_is() -> None:
    host = FakeHost()
    no_link = {"nvlinks_active": None, "nvlinks_supported": 0, "nvlink_mbps": None}
    host.samples = [healthy_gpu(index, name="NVIDIA H200", **no_link) for index in (0, 1)]
    assert "nvlinks-active" not in {one.check for one in findings(host, QaFloors())}
    assert ("nvlinks-active", 0, None) in not_ok_at_rest(host, QaFloors(nvlinks=18)), "the plan wants them"
    host.samples[1] = healthy_gpu(1, name="NVIDIA H200")
    assert ("nvlinks-active", 0, None) in not_ok_at_rest(host, QaFloors())


def test_a_floor_in_the_plan_takes_precedence_over_the_boards_default() -> None:
    host = FakeHost()
    sites = QaFloors(power_limit_w=500, persistence=False, ecc=False)
    ours = {"power_limit_w": 500.0, "persistence_mode": False, "ecc_mode": False, "ecc_mode_pending": False}
    host.samples = [healthy_gpu(index, **ours) for index in (0, 1)]
    assert not_ok(host, sites) == []
    other = FakeHost()
    other.samples = [healthy_gpu(0, **ours | {"power_limit_w": 450.0, "ecc_mode_pending": True}), host.samples[1]]
    assert not_ok(other, sites) == [("ecc-mode", 0, False), ("power-limit", 0, False)]


def burnt(rest: GpuSample, *loaded: GpuSample, **changes: Any) -> GpuReadings:
    moments = [Moment(float(second), sample) for second, sample in enumerate(loaded)]
    return GpuReadings(rest, GpuBurn(moments, report(Burn()), 300.0), **changes)


def judged(name: str, gpu: GpuReadings, floors: QaFloors = QaFloors()) -> Any:  # noqa: B008 - frozen
    return next(check for check in GPU_CHECKS if check.name == name).judge(gpu, floors)


def test_a_slow_link_is_unknown_at_rest_and_judged_under_load() -> None:
    rest = healthy_gpu(0, pcie_generation=1)
    assert judged("pcie-generation", GpuReadings(rest)).ok is None
    assert judged("pcie-generation", burnt(rest, healthy_gpu(0))).ok


def test_the_lowest_clock_of_the_burn_in_is_judged_and_not_the_last() -> None:
    clocks = [345.0, 1980.0, 510.0, 1980.0]
    found = judged("sm-clock", burnt(healthy_gpu(0), *(healthy_gpu(0, sm_clock_mhz=clock) for clock in clocks)))
    assert (found.ok, found.value) == (False, 510.0)


def test_a_slowdown_at_any_time_of_the_burn_in_fails_and_says_when_it_began() -> None:
    hot = healthy_gpu(0, clocks_event_reasons=0x20, temperature_c=86.0)
    found = judged("hw-slowdown", burnt(healthy_gpu(0), healthy_gpu(0), healthy_gpu(0), hot, healthy_gpu(0)))
    assert not found.ok
    assert found.detail == "SW thermal slowdown: first after 2 s at 86 °C, in 25% of the readings under load"


def test_a_gpu_that_is_much_hotter_than_the_others_fails_below_every_limit() -> None:
    peers = tuple(burnt(healthy_gpu(i), *_hot(i, heat, for_s=21)) for i, heat in ((1, 66.0), (2, 68.0)))
    for heat, ok in ((82.0, True), (83.0, False)):
        gpu = burnt(healthy_gpu(0), *_hot(0, heat, for_s=21), peers=peers)
        assert judged("temperature-spread", gpu).ok is ok
    assert judged("temperature-spread", burnt(healthy_gpu(0), *_hot(0, 90.0, for_s=21))) is None


def test_the_heat_of_work_before_the_burn_in_is_not_held_against_a_gpu() -> None:
    peers = (burnt(healthy_gpu(1), *_hot(1, 50.0, for_s=21)),)
    cooled = burnt(healthy_gpu(0), *_hot(0, 80.0, for_s=20), *_hot(0, 50.0, for_s=1), peers=peers)
    assert judged("temperature-spread", cooled).ok
    assert judged("temperature-spread", burnt(healthy_gpu(0), *_hot(0, 80.0, for_s=20), peers=peers)) is None


def _hot(index: int, temperature_c: float, for_s: int) -> list[GpuSample]:
    return [healthy_gpu(index, temperature_c=temperature_c)] * for_s


def load(gpu: int = 0, gemm: float = 700, memory: float = 2800) -> LoadResult:
    return LoadResult(gpu=gpu, gemm_tflops=gemm, memory_bandwidth_gbs=memory)


@pytest.mark.parametrize("name", GPU_MODELS)
def test_every_model_fails_at_half_its_bandwidth_and_passes_at_three_quarters(name: str) -> None:
    rest, sheet = healthy_gpu(0, name=name), GPU_MODELS[name].memory_gbs
    # A healthy copy shows 70 to 87 % of the data sheet; half of the better is 43.5 %.
    for share, ok in ((0.435, False), (0.75, True)):
        found = judged("memory-bandwidth", burnt(rest, rest, load=load(memory=share * sheet)))
        assert (found.ok, name in found.bound) == (ok, True)


def test_the_plans_floor_takes_precedence_over_the_models() -> None:
    gpu = burnt(healthy_gpu(0), healthy_gpu(0), load=load(memory=2100))
    assert not judged("memory-bandwidth", gpu).ok
    assert judged("memory-bandwidth", gpu, QaFloors(memory_bandwidth_gbs=1905)).ok


def test_a_model_without_floors_is_held_to_the_nodes_other_gpus_and_alone_is_unknown() -> None:
    rest = healthy_gpu(0, name="NVIDIA Z9")
    peers = tuple(burnt(healthy_gpu(i, name=rest.name), rest, load=load(i, gemm=98.0 + 2 * i)) for i in (0, 1, 2))
    for rate, ok in ((90.0, True), (89.0, False)):
        assert judged("gemm-rate", burnt(rest, rest, load=load(gemm=rate), peers=peers)).ok is ok
    alone = judged("gemm-rate", burnt(rest, rest, load=load()))
    assert alone.ok is None
    assert "no floor is known for NVIDIA Z9" in alone.detail


def test_a_gpu_behind_the_others_fails_although_it_holds_its_models_floor() -> None:
    peers = tuple(burnt(healthy_gpu(i), healthy_gpu(i), load=load(i, gemm=750)) for i in (1, 2, 3))
    gpu = burnt(healthy_gpu(0), healthy_gpu(0), load=load(gemm=660), peers=peers)
    assert judged("gemm-rate", gpu).ok
    assert not judged("gemm-spread", gpu).ok


def test_a_first_product_that_differs_from_most_gpus_fails_and_a_tie_is_unknown() -> None:
    odd = GpuReadings(healthy_gpu(0), GpuBurn([], WorkReport(seconds=1, products=1, digest="0bad"), 1.0))
    good = [burnt(healthy_gpu(i), healthy_gpu(i)) for i in (1, 2)]
    assert judged("gemm-agreement", replace(odd, peers=tuple(good))).ok is False
    assert judged("gemm-agreement", replace(good[0], peers=(odd, good[1]))).ok
    assert judged("gemm-agreement", replace(odd, peers=(good[0],))).ok is None
    assert judged("gemm-agreement", odd) is None


def test_no_burn_in_begins_where_a_gpu_is_hot_already() -> None:
    host = FakeHost()
    host.samples[1] = healthy_gpu(1, temperature_c=84.0)
    found = findings(host)
    assert host.works == {} and host.steered == []
    assert all("GPU 1 is at 84.0 °C at rest" in one.detail for one in found if one.check in {"burn-in", *LOADED})
    assert all(one.ok is None for one in found if one.check in {"burn-in", *LOADED})


def test_the_load_ends_on_all_gpus_when_one_is_above_the_limit() -> None:
    host = FakeHost()
    begin = host.start_work

    def start(gpu: int, order: Any) -> WorkReport:
        host.samples[1] = healthy_gpu(1, temperature_c=95.0)
        return begin(gpu, order)

    host.start_work = start  # type: ignore[method-assign]
    found = {(one.check, one.gpu): one for one in findings(host)}
    assert host.works == {}
    assert found["temperature", 1].ok is False
    assert found["burn-in", None].ok is None
    assert "GPU 1 was at 95 °C" in found["burn-in", None].detail


def test_a_load_that_breaks_off_is_unknown_and_says_why() -> None:
    host = FakeHost()
    host.reports = lambda order: WorkReport(seconds=1.0, products=3, error="cudaErrorECCUncorrectable")
    found = next(one for one in findings(host) if one.check == "burn-in")
    assert found.ok is None
    assert "cudaErrorECCUncorrectable" in found.detail


@pytest.mark.parametrize(("virtual", "seconds"), [(True, 1.0), (False, 300.0)])
def test_only_a_virtual_node_takes_the_short_burn_in(virtual: bool, seconds: float) -> None:
    host, now = FakeHost(), [0.0]
    host.is_virtual = virtual

    def wait(seconds: float) -> None:
        now[0] += max(seconds, 0.25)

    asked = Proof(floors=FULL, burn_in_s=300, virtual_burn_in_s=1)
    pace = Pace(lambda: now[0], wait)
    readings = read_node(host, MARKER, None, threading.Event(), asked, pace)
    found = next(one for one in judge(readings, FULL) if one.check == "burn-in")
    assert (found.ok, found.bound, found.value) == (True, f">= {seconds:g} on every GPU", seconds)


def test_the_gpu_count_is_compared_with_the_plan_or_with_the_node_before() -> None:
    assert not_ok(FakeHost(gpus=1)) == [("gpu-count", None, False)]
    readings = read_node(FakeHost(), MARKER, 8, threading.Event(), proof(QaFloors()))
    assert not next(judge(readings, QaFloors())).ok


def test_nvml_that_cannot_be_opened_is_unknown() -> None:
    host = FakeHost()
    host.refuse["gpus"] = "NVML not found"
    (count, burn, log) = findings(host)
    assert (burn.check, burn.ok) == ("burn-in", None)
    assert (count.check, count.value, count.ok, count.detail) == ("gpu-count", None, None, "NVML not found")
    assert log.ok


@pytest.mark.parametrize(
    ("lines", "ok"),
    [
        ([], True),
        (["usb 1-1: new device", XID.format(13), XID.format(31)], True),
        ([XID.format(79)], False),
        ([XID.format(48)], False),
        ([XID.format(119), RESET.format("true")], True),
        ([XID.format(119), RESET.format("false")], False),
        ([RESET.format("true"), XID.format(119)], False),
        ([XID.format(119).replace("1b", "1c"), RESET.format("true")], False),
        (["gameday: marker NVRM: Xid (PCI:0000:1b:00): 79, x"], True),
    ],
)
def test_the_kernel_log_may_hold_no_quarantining_event_that_no_reset_healed(lines: list[str], ok: bool) -> None:
    host = FakeHost()
    for line in lines:
        host.write_kernel_log(f"<3>{line}")
    assert not_ok(host) == ([] if ok else [("kernel-log", None, False)])


def test_events_from_before_the_run_are_counted_and_not_judged() -> None:
    host = FakeHost()
    for line in (XID.format(79), f"gameday: marker {MARKER}", XID.format(13)):
        host.write_kernel_log(f"<3>{line}")
    log = next(found for found in findings(host) if found.check == "kernel-log")
    assert (log.value, log.ok, log.detail) == (0, True, "1 quarantining from before this run")


def test_a_second_marker_does_not_hide_events_of_the_run() -> None:
    host = FakeHost()
    for line in (f"gameday: marker {MARKER}", XID.format(48), f"gameday: marker {MARKER}"):
        host.write_kernel_log(f"<3>{line}")
    assert not_ok(host) == [("kernel-log", None, False)]


def test_a_kernel_log_that_cannot_be_read_is_unknown() -> None:
    host = FakeHost()
    host.refuse["read_kernel_log"] = "no /dev/kmsg"
    assert not_ok(host) == [("kernel-log", None, None)]


def test_no_load_is_started_after_a_signal() -> None:
    ended = threading.Event()
    ended.set()
    readings = read_node(FakeHost(), MARKER, 2, ended, proof(FULL))
    assert [gpu.load for gpu in readings.gpus] == [None, None]


def test_no_load_runs_without_a_burn_in() -> None:
    host = FakeHost()
    readings = read_node(host, MARKER, 2, threading.Event(), proof(QaFloors(gpus=2), None))
    assert all(gpu.load is None and gpu.burn is None for gpu in readings.gpus)
    assert host.steered == []
    assert LOADED.isdisjoint(one.check for one in judge(readings, QaFloors()))


def test_an_xid_that_comes_under_the_load_is_found() -> None:
    host = FakeHost()
    begin = host.start_work

    def start(gpu: int, order: Any) -> WorkReport:
        host.write_kernel_log(f"<3>{XID.format(48)}")
        return begin(gpu, order)

    host.start_work = start  # type: ignore[method-assign]
    assert ("kernel-log", None, False) in not_ok(host)


def all_reduce(host: FakeHost, floors: QaFloors = FULL) -> dict[str, QaResult]:
    """Return the findings about the all-reduce, by check."""
    return {one.check: one for one in findings(host, floors) if one.check.startswith("all-reduce")}


@pytest.mark.parametrize(
    ("reported", "floors", "ok"),
    [
        ({"bus_gbs": 335.0}, QaFloors(), {"all-reduce-rate": True, "all-reduce-sums": True}),
        ({"bus_gbs": 334.0}, QaFloors(), {"all-reduce-rate": False, "all-reduce-sums": True}),
        ({"bus_gbs": 334.0}, QaFloors(all_reduce_gbs=300), {"all-reduce-rate": True, "all-reduce-sums": True}),
        ({"bus_gbs": 40.0}, QaFloors(nvlinks=0), {"all-reduce-sums": True}),
        ({"bus_gbs": 470.0, "wrong_sums": 1}, QaFloors(), {"all-reduce-rate": True, "all-reduce-sums": False}),
    ],
)
def test_the_all_reduce_is_judged_by_its_sums_and_by_the_links_of_the_model(
    reported: dict[str, Any], floors: QaFloors, ok: dict[str, bool]
) -> None:
    host = FakeHost()
    host.reports = lambda order: WorkReport(seconds=1.0, **reported) if isinstance(order, AllReduce) else report(order)
    assert {name: one.ok for name, one in all_reduce(host, floors).items()} == ok
    assert not host.works


def test_an_all_reduce_without_all_gpus_or_without_nccl_is_unknown_and_says_why() -> None:
    host = FakeHost()
    host.samples[1] = healthy_gpu(1, lost=True)
    assert {(one.ok, one.detail) for one in all_reduce(host).values()} == {
        (None, "an all-reduce needs all GPUs. GPU 1: it did not compute in the burn-in")
    }
    host = FakeHost()

    def without_nccl(order: Any) -> WorkReport:
        if isinstance(order, AllReduce):
            raise HostError("NCCL cannot be loaded")
        return report(order)

    host.reports = without_nccl
    assert {(one.ok, one.detail) for one in all_reduce(host).values()} == {
        (None, "no all-reduce ran: NCCL cannot be loaded")
    }


def test_one_gpu_alone_and_a_qa_that_only_reads_have_no_all_reduce() -> None:
    assert all_reduce(FakeHost(1), QaFloors(gpus=1)) == {}
    assert not any(one.check.startswith("all-reduce") for one in read_only(FakeHost()))


def test_gpus_of_several_models_have_no_floor_in_common() -> None:
    host = FakeHost()
    host.samples[1] = healthy_gpu(1, name="NVIDIA H200")
    assert set(all_reduce(host)) == {"all-reduce-sums"}
