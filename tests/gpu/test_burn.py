"""Load and burn on a real GPU: right, as fast as cuBLAS on the same data, as hot as a burner that others trust."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gameday.host.base import Burn, GpuSample, Precision
from gameday.host.load import measure_load
from gameday.host.real import RealHost
from tests.gpu.conftest import Note, assert_given_back, now, until
from tests.gpu.judging import WARMER_C, Shown, settled_watts, why_not_as_known
from tests.gpu.products import OURS, Shape, Values, alone, library_rate, library_rates

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600), pytest.mark.usefixtures("cupy")]

BURN_S = 10
"""A die comes to its heat in 5 s, and NVML's watts to the burn's in 1 s (docs/sources.md, A recorded GPU)."""
CEILING_C = 90
"""Below the 93 degrees at which QA fails a GPU."""
LOOK_EVERY_S = 0.5
SHAPES: tuple[Shape, ...] = (OURS, (4096, 4096, 4096), (16384, 16384, 16384), (16384, 8192, 4096), (8192, 8192, 16384))


def curve_of(host: RealHost, gpu: GpuSample, is_over: Callable[[], bool]) -> list[GpuSample]:
    """Read the GPU twice a second until the work is over, or the GPU too hot."""
    curve = [now(host, gpu)]
    while not until(is_over, LOOK_EVERY_S) and (curve[-1].temperature_c or 0) < CEILING_C:
        curve.append(now(host, gpu))
    return curve


def watts_of(curve: Sequence[GpuSample]) -> float:
    """Return the power of the burn itself. Raises ValueError if the curve shows none."""
    return settled_watts([Shown(LOOK_EVERY_S * place, one.power_w or 0.0) for place, one in enumerate(curve)])


def shown(curve: Sequence[GpuSample]) -> str:
    return "; ".join(f"{sample.power_w} W {sample.temperature_c} °C {sample.sm_clock_mhz} MHz" for sample in curve[::2])


def test_the_load_is_right_and_as_fast_as_the_library_on_the_same_data(gpu: GpuSample, note: Note) -> None:
    with alone() as process:
        load = process.submit(measure_load, gpu.index, 4.0).result()
    assert load.gemm_tflops and load.memory_bandwidth_gbs, load.detail
    with alone() as process:
        rates = process.submit(library_rates, gpu.index, 2.0, SHAPES).result()
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
    gpu: GpuSample, host: RealHost, note: Note, precision: Precision
) -> None:
    host.start_work(gpu.index, Burn(precision=precision))
    ends, reports = time.monotonic() + BURN_S, []

    def is_over() -> bool:
        host.steer_work(gpu.index, 1.0)
        report = host.work_report(gpu.index)
        assert report is not None and not report.error, report
        reports.append(report)
        return time.monotonic() > ends

    curve = curve_of(host, gpu, is_over)
    hot, last = curve[-1], reports[-1]
    note(f"{precision}: {shown(curve)}")
    note(f"{precision}: {statistics.median(report.tflops or 0.0 for report in reports):.0f} TFLOP/s")
    assert last.products > 1 and last.wrong_results == 0
    assert (hot.utilization_pct or 0) > 90
    if gpu.power_w is not None:
        assert watts_of(curve) > 2 * gpu.power_w, "a burn draws several times what a GPU at rest does"
    assert gpu.temperature_c is None or (hot.temperature_c or 0) > gpu.temperature_c + WARMER_C

    def is_idle() -> bool:
        host.steer_work(gpu.index, 0.0)
        return (now(host, gpu).utilization_pct or 0) < 20

    assert until(is_idle, 15), "a share of 0 does not throttle the burn"
    host.end_work(gpu.index)
    assert_given_back(host, gpu)


def test_a_product_of_random_factors_takes_more_energy_than_one_of_signs(
    gpu: GpuSample, host: RealHost, note: Note
) -> None:
    if gpu.power_w is None:
        pytest.skip("NVML shows no power of this GPU")
    joules: dict[Values, float] = {}
    kinds: tuple[Values, ...] = ("-1 and 1", "random")
    for values in kinds:
        with alone() as process:
            job = process.submit(library_rate, gpu.index, BURN_S, OURS, values)
            watts = watts_of(curve_of(host, gpu, job.done))
            rate = job.result()
        note(f"factors {values}: {watts:.0f} W, {rate:.0f} TFLOP/s, {watts / rate:.2f} J/TFLOP")
        joules[values] = watts / rate
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


def test_a_burn_draws_as_much_power_as_a_known_burner(gpu: GpuSample, host: RealHost, note: Note) -> None:
    if gpu.power_w is None:
        pytest.skip("NVML shows no power of this GPU")
    known_watts = watts_of(curve_of_known_burner(host, gpu, note))
    host.start_work(gpu.index, Burn())
    ends = time.monotonic() + BURN_S

    def is_over() -> bool:
        host.steer_work(gpu.index, 1.0)
        return time.monotonic() > ends

    ours = curve_of(host, gpu, is_over)
    host.end_work(gpu.index)
    note(f"ours: {shown(ours)}")
    watts = watts_of(ours)
    note(f"{watts:.0f} W, {watts / known_watts:.1%} of the known burner's {known_watts:.0f} W")
    assert why_not_as_known(watts, known_watts, gpu.power_limit_w) == ""
