"""Crashes of a CUDA program on a real GPU: the driver's own Xid for each kernel, and work beside them that goes on."""

from __future__ import annotations

import pytest

from gameday.faults.cuda_crash import XIDS, CudaCrashFault, CudaCrashParameters
from gameday.host.base import CrashKernel, GpuSample
from gameday.host.real import RealHost
from tests.gpu.conftest import Note, assert_given_back, now, until
from tests.gpu.products import alone, library_rate

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300), pytest.mark.usefixtures("cupy", "root")]

CRASH = CudaCrashFault()


@pytest.mark.parametrize("kernel", XIDS)
def test_the_driver_itself_writes_the_xid_of_each_kernel(
    gpu: GpuSample, host: RealHost, note: Note, kernel: CrashKernel
) -> None:
    evidence = CRASH.inject(CudaCrashParameters(kernel=kernel), gpu.index, host)
    for line in evidence.lines:
        note(line)
    assert evidence.written_at and evidence.logged_at and evidence.written_at <= evidence.logged_at
    assert evidence.nvml_at, "NVML gave no event"
    assert_given_back(host, gpu)


def test_work_beside_a_burst_of_crashes_goes_on(gpu: GpuSample, host: RealHost, note: Note) -> None:
    parameters = CudaCrashParameters(kernel="misaligned_address", repeat=2, beside_jobs=True)
    with alone() as process:
        job = process.submit(library_rate, gpu.index, 15.0)
        assert until(lambda: (now(host, gpu).utilization_pct or 0) > 50, 30), "the work beside did not begin"
        lines = CRASH.inject(parameters, gpu.index, host).lines
        assert not job.done(), "the work ended before the crashes did"
        rate = job.result()
    note(f"{sum('pid=' in line for line in lines)} crashes; the work beside went on, at {rate:.0f} TFLOP/s")
    assert rate > 0
