"""Load and burn on a real GPU: right, as fast as cuBLAS on the same data, as hot as a burner that others trust."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gameday.host.base import Burn, GpuSample, Precision
from gameday.host.load import measure_load
from gameday.host.real import RealHost
from tests.gpu.conftest import Note, assert_given_back, now, until

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

BURN_S = 20
CEILING_C = 90
"""Below the 93 degrees at which QA fails a GPU."""
COOL_S = 120
"""Longest time for which a GPU may cool down between two burns that are compared."""
OURS = (8192, 8192, 8192)
"""Rows, columns and inner dimension of the product that QA measures (gameday.host.load)."""
SHAPES = (OURS, (4096, 4096, 4096), (16384, 16384, 16384), (16384, 8192, 4096), (8192, 8192, 16384))
KNOWN_SHARE = 0.9
"""Least share of a known burner's power that ours must draw. Our own figure: NVML's watts differ by some per cent."""

Values = Callable[[Any], Any]
"""A function that turns factors between -1 and 1 into the factors to multiply."""


@pytest.fixture(autouse=True)
def _pool_given_back(gpu: GpuSample, cupy: Any) -> Iterator[None]:
    """CuPy's memory goes back after each test, so that the next one finds the GPU as it was."""
    yield
    with cupy.cuda.Device(gpu.index):
        cupy.get_default_memory_pool().free_all_blocks()


def library_rate(
    cupy: Any, gpu: int, seconds: float, shape: tuple[int, int, int] = OURS, values: Values = lambda drawn: drawn
) -> float:
    """Return TFLOP/s of FP16 products on the data that the load has, without any check between them."""
    rows, columns, inner = shape
    with cupy.cuda.Device(gpu):
        generator = cupy.random.RandomState(seed=1)
        left = values(generator.uniform(-1, 1, (rows, inner))).astype(cupy.float16)
        right = values(generator.uniform(-1, 1, (inner, columns))).astype(cupy.float16)
        out = left @ right
        cupy.cuda.Stream.null.synchronize()
        start, products = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            for _ in range(10):
                cupy.matmul(left, right, out=out)
            cupy.cuda.Stream.null.synchronize()
            products += 10
        return 2 * rows * columns * inner * products / (time.perf_counter() - start) / 1e12


def curve_of(host: RealHost, gpu: GpuSample, is_over: Callable[[], bool]) -> list[GpuSample]:
    """Read the GPU once a second until the work is over, or the GPU too hot."""
    curve = [now(host, gpu)]
    while not until(is_over, 1.0) and (curve[-1].temperature_c or 0) < CEILING_C:
        curve.append(now(host, gpu))
    return curve


def watts_of(curve: Sequence[GpuSample]) -> float:
    """Return the median power of the second half, in which clocks and NVML's averages have settled."""
    return statistics.median(sample.power_w or 0.0 for sample in curve[len(curve) // 2 :])


def shown(curve: Sequence[GpuSample]) -> str:
    return "; ".join(f"{sample.power_w} W {sample.temperature_c} °C {sample.sm_clock_mhz} MHz" for sample in curve)


def test_the_load_is_right_and_as_fast_as_the_library_on_the_same_data(idle: GpuSample, cupy: Any, note: Note) -> None:
    load = measure_load(idle.index, 4.0)
    assert load.gemm_tflops and load.memory_bandwidth_gbs, load.detail
    rates = {shape: library_rate(cupy, idle.index, 2.0, shape) for shape in SHAPES}
    for shape, rate in rates.items():
        note(f"library, {' x '.join(map(str, shape))}: {rate:.0f} TFLOP/s")
    best = max(rates, key=lambda shape: rates[shape])
    note(f"GEMM {load.gemm_tflops:.0f} TFLOP/s, {load.gemm_tflops / rates[OURS]:.1%} of the library's in this shape")
    note(f"{load.gemm_tflops / rates[best]:.1%} of the library's best, {' x '.join(map(str, best))}")
    note(f"copy {load.memory_bandwidth_gbs:.0f} GB/s, read and written")
    assert load.wrong_results == 0
    assert load.gemm_tflops >= 0.95 * rates[OURS]


@pytest.mark.parametrize("precision", ["half", "bf16"])
def test_a_burn_heats_is_right_and_can_be_throttled(
    idle: GpuSample, host: RealHost, note: Note, precision: Precision
) -> None:
    host.start_work(idle.index, Burn(precision=precision))
    ends, reports = time.monotonic() + BURN_S, []

    def is_over() -> bool:
        host.steer_work(idle.index, 1.0)
        report = host.work_report(idle.index)
        assert report is not None and not report.error, report
        reports.append(report)
        return time.monotonic() > ends

    curve = curve_of(host, idle, is_over)
    hot, last = curve[-1], reports[-1]
    note(f"{precision}: {shown(curve)}")
    note(f"{precision}: {statistics.median(report.tflops or 0.0 for report in reports):.0f} TFLOP/s")
    assert last.products > 1 and last.wrong_results == 0
    assert (hot.utilization_pct or 0) > 90
    assert hot.power_w is None or idle.power_w is None or hot.power_w > idle.power_w

    def is_idle() -> bool:
        host.steer_work(idle.index, 0.0)
        return (now(host, idle).utilization_pct or 0) < 20

    assert until(is_idle, 15), "a share of 0 does not throttle the burn"
    host.end_work(idle.index)
    assert_given_back(host, idle)


def test_a_product_of_random_factors_takes_more_energy_than_one_of_signs(
    idle: GpuSample, host: RealHost, cupy: Any, note: Note
) -> None:
    if idle.power_w is None:
        pytest.skip("NVML shows no power of this GPU")
    joules: dict[str, float] = {}
    kinds: dict[str, Values] = {"-1 and 1": cupy.sign, "random": lambda drawn: drawn}
    with ThreadPoolExecutor(1) as pool:
        for name, values in kinds.items():
            job = pool.submit(library_rate, cupy, idle.index, BURN_S, OURS, values)
            watts = watts_of(curve_of(host, idle, job.done))
            rate = job.result()
            note(f"factors {name}: {watts:.0f} W, {rate:.0f} TFLOP/s, {watts / rate:.2f} J/TFLOP")
            joules[name] = watts / rate
    assert joules["random"] > joules["-1 and 1"]


def known_burner(gpu: int) -> list[str]:
    """Return the command of a burner that is not ours, for BURN_S seconds on one GPU; skip the test without one.

    gpu_burn's options are of wilicc/gpu-burn 3ead140, dcgmi's of DCGM 4.
    """
    if program := shutil.which("gpu_burn"):
        return [program, "-tc", "-i", str(gpu), str(BURN_S)]
    if program := shutil.which("dcgmi"):
        duration = f"targeted_power.test_duration={BURN_S}"
        return [program, "diag", "-r", "targeted_power", "-p", duration, "--entity-id", f"gpu:{gpu}"]
    pytest.skip("no known burner: neither gpu_burn (github.com/wilicc/gpu-burn) nor dcgmi is on PATH")


def curve_of_known_burner(host: RealHost, gpu: GpuSample, note: Note) -> list[GpuSample]:
    """Burn with a known burner, and return what NVML showed; the test is skipped where the burner cannot run."""
    argv = known_burner(gpu.index)
    folder = Path(argv[0]).resolve().parent  # gpu_burn looks for its kernel where it is started
    with (
        subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as burner,
        ThreadPoolExecutor(1) as pool,
    ):
        job = pool.submit(burner.communicate)
        curve = curve_of(host, gpu, job.done)
        is_too_hot = not job.done()
        burner.terminate()
        said = " ".join(job.result()[0].split())[-200:]
    if burner.returncode and not is_too_hot:
        pytest.skip(f"{' '.join(argv)} ended with {burner.returncode}: {said}")
    note(f"{' '.join(argv)}: {shown(curve)}. {said}")
    return curve


def test_a_burn_draws_as_much_power_as_a_known_burner(idle: GpuSample, host: RealHost, note: Note) -> None:
    if idle.power_w is None:
        pytest.skip("NVML shows no power of this GPU")
    theirs = curve_of_known_burner(host, idle, note)
    until(lambda: (now(host, idle).temperature_c or 0) <= (idle.temperature_c or 0) + 5, COOL_S)
    host.start_work(idle.index, Burn())
    ends = time.monotonic() + BURN_S

    def is_over() -> bool:
        host.steer_work(idle.index, 1.0)
        return time.monotonic() > ends

    ours = curve_of(host, idle, is_over)
    host.end_work(idle.index)
    note(f"ours: {shown(ours)}")
    watts, known_watts = watts_of(ours), watts_of(theirs)
    note(f"{watts:.0f} W, {watts / known_watts:.1%} of the known burner's {known_watts:.0f} W")
    assert watts >= KNOWN_SHARE * known_watts
