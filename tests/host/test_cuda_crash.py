"""The kernels that fault: NVRTC compiles them without a GPU; and a crash as the worker sees it, without CUDA."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gameday.errors import HostError
from gameday.host.base import Crash, CrashKernel, CrashReport, XidEvent
from gameday.host.cuda_crash import NAME, SOURCES, crash
from tests.host.test_load import FakeCupy
from tests.host.test_worker import work

FAULTS: dict[CrashKernel, str] = {
    "illegal_address": "mov.u64 \t%rd1, 144546686042112;",  # 0x8376e5e00000
    "misaligned_address": "st.volatile.global.u32 \t[%rd2+1]",
    "shared_out_of_range": "st.shared.u32 [%r1]",
    "stack_overflow": "call.uni (retval0), \n\t_Z6deeper",
    "trap": "\ttrap;",
}
"""The instruction of each kernel's PTX that does it."""


@pytest.fixture(scope="module")
def nvrtc() -> ctypes.CDLL:
    spec = find_spec("nvidia.cuda_nvrtc") if find_spec("nvidia") else None
    for folder in spec.submodule_search_locations or () if spec else ():
        for library in Path(folder).glob("lib/libnvrtc.so.*"):
            return ctypes.CDLL(str(library))
    pytest.skip("NVRTC is not installed: `make test-gpu` installs requirements-gpu.lock")


def compiled(nvrtc: ctypes.CDLL, source: str, architecture: str) -> bytes:
    """Return PTX for compute_NN, and the GPU's own code for sm_NN."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    kind = "PTX" if architecture.startswith("compute") else "CUBIN"
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture={architecture}".encode())
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"crash.cu", 0, None, None) == 0
    assert nvrtc.nvrtcCompileProgram(program, 1, options) == 0
    assert getattr(nvrtc, f"nvrtcGet{kind}Size")(program, ctypes.byref(size)) == 0
    code = ctypes.create_string_buffer(size.value)
    assert getattr(nvrtc, f"nvrtcGet{kind}")(program, code) == 0
    return code.raw


@pytest.mark.parametrize("kernel", FAULTS)
def test_each_kernel_compiles_to_the_instruction_that_faults(nvrtc: ctypes.CDLL, kernel: CrashKernel) -> None:
    assert FAULTS[kernel] in compiled(nvrtc, SOURCES[kernel], "compute_75").decode()
    for architecture in ("sm_75", "sm_80", "sm_90", "sm_100"):
        assert NAME.encode() in compiled(nvrtc, SOURCES[kernel], architecture)


class Faulting(FakeCupy):
    """NumPy with a kernel; `says` is the error of the synchronisation after it."""

    def __init__(self, says: str | None) -> None:
        super().__init__()
        self.launched: list[str] = []
        self._says = says
        self.cuda.Stream = SimpleNamespace(null=SimpleNamespace(synchronize=self._synchronize))

    def RawModule(self, code: str) -> Any:
        return SimpleNamespace(get_function=lambda name: lambda *_: self.launched.append(code))

    def _synchronize(self) -> None:
        if self.launched and self._says:
            raise RuntimeError(self._says)


@contextmanager
def events(code: int | None = 43) -> Iterator[Callable[[], XidEvent | None]]:
    yield lambda: XidEvent(code=code, at=datetime.now(UTC)) if code else None


def test_a_crash_reports_its_process_its_error_and_nvmls_event() -> None:
    cupy = Faulting("cudaErrorLaunchFailure: unspecified launch failure")
    report = crash(cupy, "trap", events)
    assert cupy.launched == [SOURCES["trap"]]
    assert (report.pid, report.error) == (os.getpid(), "cudaErrorLaunchFailure: unspecified launch failure")
    assert report.command == Path("/proc/self/comm").read_text().strip()
    assert report.nvml and report.nvml.code == 43 and not report.nvml_unseen


def test_a_crash_without_nvmls_events_says_why() -> None:
    @contextmanager
    def none_here() -> Iterator[Callable[[], XidEvent | None]]:
        raise HostError("NVML: not supported")
        yield

    report = crash(Faulting("cudaErrorLaunchFailure"), "trap", none_here)
    assert (report.nvml, report.nvml_unseen) == (None, "NVML: not supported")
    silent = crash(Faulting("cudaErrorLaunchFailure"), "trap", lambda: events(None))
    assert (silent.nvml, silent.nvml_unseen) == (None, "NVML gave no event of an Xid within 3 s")


def test_a_kernel_that_does_not_fault_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="the kernel trap ended without an error"):
        crash(Faulting(None), "trap", events)


def test_the_workers_one_report_is_the_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gameday.host.worker.xid_events", lambda gpu: events())
    (report,) = work(Crash(kernel="trap"), Faulting("cudaErrorLaunchFailure"), monkeypatch, reports=1)  # type: ignore[arg-type]
    assert isinstance(report.crash, CrashReport) and report.crash.error == "cudaErrorLaunchFailure"
