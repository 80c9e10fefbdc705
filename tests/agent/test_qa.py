"""Each QA check passes, fails, or cannot measure, by the readings it is given."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from gameday.agent.qa.checks import GPU_CHECKS, judge
from gameday.agent.qa.readings import GpuReadings, read_node
from gameday.agent.task import QaResult
from gameday.host.base import LoadResult
from gameday.plan.qa import QaFloors
from tests.host.fake import FakeHost, healthy_gpu

FULL = QaFloors(
    gpus=2,
    gemm_tflops=650,
    memory_bandwidth_gbs=2500,
    pcie_generation=5,
    pcie_width=16,
    nvlinks=18,
    memory_free_mib=4096,
)
MARKER = "20261121-204941-0"
RESET = "gameday-agent: GPU reset executed: PCI:0000:1b:00, success: {}"
XID = "kernel: NVRM: Xid (PCI:0000:1b:00): {}, pid='<unknown>', name=<unknown>, x"


def findings(host: FakeHost, floors: QaFloors = FULL) -> list[QaResult]:
    return list(judge(read_node(host, MARKER, None, threading.Event(), load=True), floors))


def not_ok(host: FakeHost, floors: QaFloors = FULL) -> list[tuple[str, int | None, bool | None]]:
    return [(found.check, found.gpu, found.ok) for found in findings(host, floors) if not found.ok]


def test_a_healthy_node_passes_every_check() -> None:
    found = findings(FakeHost())
    assert all(one.ok for one in found)
    assert {one.check for one in found if one.gpu == 1} == {check.name for check in GPU_CHECKS}
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
        ({"temperature_c": 94.0}, "temperature"),
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
    assert not_ok(host) == [(check, 1, False)]


@pytest.mark.parametrize(
    "changes",
    [
        {"remapped_rows_uncorrectable": 512},
        {"clocks_event_reasons": 0x17},
        {"temperature_c": 93.0},
        {"power_w": None},
        {"utilization_pct": None},
        {"power_limit_w": 699.5},
        {"memory_used_bytes": (81559 - 4096) << 20},
    ],
)
def test_a_reading_at_the_bound_passes(changes: dict[str, Any]) -> None:
    host = FakeHost()
    host.samples[1] = healthy_gpu(1, **changes)
    assert not_ok(host) == []


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
    assert not_ok(host) == [(check, 0, False)]


def test_the_detail_of_a_low_rate_names_the_work_on_a_busy_gpu() -> None:
    host = FakeHost()
    host.samples[0] = healthy_gpu(0, utilization_pct=96.0)
    host.loads[0] = LoadResult(gpu=0, gemm_tflops=100, memory_bandwidth_gbs=2800)
    (low,) = [found for found in findings(host) if not found.ok]
    assert "96 % busy before the load" in low.detail


def test_without_cupy_a_rate_with_a_floor_is_unknown_and_one_without_is_not_judged() -> None:
    host = FakeHost()
    for gpu in (0, 1):
        host.loads[gpu] = LoadResult(gpu=gpu, gemm_tflops=None, memory_bandwidth_gbs=None, detail="no CuPy")
    assert not_ok(host) == [(check, gpu, None) for gpu in (0, 1) for check in ("gemm-rate", "memory-bandwidth")]
    assert not_ok(host, QaFloors()) == []


def test_a_floor_of_none_switches_its_check_off() -> None:
    host = FakeHost()
    host.samples[1] = healthy_gpu(1, nvlinks_active=0, temperature_c=120.0, ecc_mode=False, persistence_mode=False)
    assert not_ok(host, QaFloors(temperature_max_c=None, ecc=None, persistence=None)) == []


def test_a_floor_in_the_plan_takes_precedence_over_the_boards_default() -> None:
    host = FakeHost()
    sites = QaFloors(power_limit_w=500, persistence=False, ecc=False)
    ours = {"power_limit_w": 500.0, "persistence_mode": False, "ecc_mode": False, "ecc_mode_pending": False}
    host.samples = [healthy_gpu(index, **ours) for index in (0, 1)]
    assert not_ok(host, sites) == []
    other = FakeHost()
    other.samples = [healthy_gpu(0, **ours | {"power_limit_w": 450.0, "ecc_mode_pending": True}), host.samples[1]]
    assert not_ok(other, sites) == [("ecc-mode", 0, False), ("power-limit", 0, False)]


def test_a_slow_link_is_unknown_at_rest_and_judged_under_load() -> None:
    rest = healthy_gpu(0, pcie_generation=1)
    check = next(check for check in GPU_CHECKS if check.name == "pcie-generation")
    at_rest = check.judge(GpuReadings(rest), QaFloors())
    assert at_rest
    assert at_rest.ok is None
    under_load = check.judge(GpuReadings(rest, (healthy_gpu(0),)), QaFloors())
    assert under_load
    assert under_load.ok


def test_a_locked_clock_fails_under_load() -> None:
    check = next(check for check in GPU_CHECKS if check.name == "sm-clock")
    load = LoadResult(gpu=0, gemm_tflops=1, memory_bandwidth_gbs=1)
    locked = check.judge(GpuReadings(healthy_gpu(0), (healthy_gpu(0, sm_clock_mhz=510.0),), load), QaFloors())
    assert locked
    assert (locked.ok, locked.value) == (False, 510.0)


def test_the_gpu_count_is_compared_with_the_plan_or_with_the_node_before() -> None:
    assert not_ok(FakeHost(gpus=1)) == [("gpu-count", None, False)]
    readings = read_node(FakeHost(), MARKER, 8, threading.Event(), load=True)
    assert not next(judge(readings, QaFloors())).ok


def test_nvml_that_cannot_be_opened_is_unknown() -> None:
    host = FakeHost()
    host.refuse["gpus"] = "NVML not found"
    (count, log) = findings(host)
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
    readings = read_node(FakeHost(), MARKER, 2, ended, load=True)
    assert [gpu.load for gpu in readings.gpus] == [None, None]


def test_no_load_runs_without_a_floor_that_needs_it() -> None:
    host = FakeHost()
    readings = read_node(host, MARKER, 2, threading.Event(), load=QaFloors(gpus=2).needs_load)
    assert all(gpu.load is None for gpu in readings.gpus)
    assert {"gemm-rate", "memory-bandwidth", "gemm-results"}.isdisjoint(r.check for r in judge(readings, QaFloors()))
