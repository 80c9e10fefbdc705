"""Real Xids: a process of ours runs a kernel that faults, and the driver itself says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Literal

from pydantic import Field

from gameday.errors import HostError
from gameday.faults.base import BUS, Claim, Evidence, Fault, Layer
from gameday.faults.gpu import GpuParameters, target_gpu, wait_until
from gameday.faults.gpu_work import end_work, gpu_index
from gameday.faults.kernel_log import MOST_REPEATS, NOTHING_TO_UNDO, LogClock
from gameday.host.base import Crash, CrashKernel, CrashReport, GpuSample, Host, WorkReport
from gameday.host.privileges import GPU_WORK, PodSecurity
from gameday.xid.lines import KernelEvent, Kind, recognise

XIDS: Mapping[CrashKernel, int] = {
    "illegal_address": 31,
    "misaligned_address": 13,
    "shared_out_of_range": 13,
    "stack_overflow": 43,
    "trap": 43,
}
"""The code of the line with the process's id; a recorded H200 wrote these (docs/sources.md, Real Xids)."""
_MPS = "nvidia-cuda-mps"
"""A part of the command line of MPS' daemon and of its servers."""


class CudaCrashParameters(GpuParameters):
    goes_in_within: ClassVar[timedelta] = timedelta(minutes=2)  # ten processes that import CuPy on a cold node

    type: Literal["cuda_crash"] = "cuda_crash"
    kernel: CrashKernel
    """The kernel's mistake. illegal_address: Xid 31; misaligned_address, shared_out_of_range: 13; stack_overflow, trap:
    43."""
    repeat: int = Field(default=1, ge=1, le=MOST_REPEATS)
    """Number of processes that crash, one after the other, about a second apart."""
    beside_jobs: bool = False
    """Crash also on a GPU on which other processes compute; else such a GPU is refused."""

    @property
    def xid(self) -> int:
        """The code that the driver writes."""
        return XIDS[self.kernel]


class CudaCrashFault(Fault[CudaCrashParameters]):
    """Runs a CUDA kernel that faults, in a process of its own: the driver ends its work and writes a real Xid.

    The line comes from the kernel itself, with the process's id, which no program can forge; NVML sends its event, and
    DCGM's field moves. Without the driver's line for this process the fault did not go in.

    NVRTC compiles the kernel, which CuPy brings (extra `gpu`). The driver contains the fault to its process, so there
    is nothing to undo. It would not under MPS, whose clients share one context: a GPU that a process of MPS
    (`nvidia-cuda-mps-…` in /proc) has open is refused, and our process never joins MPS. A GPU on which NVML lists other
    compute processes is refused, too, unless `beside_jobs` allows it.
    """

    parameters: ClassVar[type[CudaCrashParameters]] = CudaCrashParameters
    layer: ClassVar[Layer] = Layer.DRIVER
    security: ClassVar[PodSecurity] = GPU_WORK
    summary: ClassVar[str] = "Crashes a CUDA program of ours: a real Xid 13, 31 or 43, by the driver itself"
    does_not_reach: ClassVar[str] = "other processes on the GPU, ECC and health counters: the GPU itself is well"
    seen_by: ClassVar[tuple[str, ...]] = (
        "every reader of the kernel log, also those that trust the kernel alone",
        "DCGM_FI_DEV_XID_ERRORS, by NVML's event",
        "the device plugin, which passes over 13, 31 and 43",
    )

    def claims(self, parameters: CudaCrashParameters) -> tuple[Claim, ...]:
        return (Claim("work", parameters.gpu), Claim(BUS, parameters.gpu, shared=True))

    def warnings(self, parameters: CudaCrashParameters) -> tuple[str, ...]:
        if not parameters.beside_jobs:
            return ()
        return ("a job may compute on the same GPU: that the driver spares it is this game-day's to show",)

    def prior_state(self, parameters: CudaCrashParameters, gpu: int, host: Host) -> dict[str, str]:
        _refuse_others(parameters, target_gpu(parameters, gpu, host), host)
        return {}

    def inject(self, parameters: CudaCrashParameters, gpu: int, host: Host) -> Evidence:
        sample = target_gpu(parameters, gpu, host)
        _refuse_others(parameters, sample, host)
        clock = LogClock(host)
        lines: list[str] = []
        written_at, logged_at, nvml_at = datetime.now(UTC), None, None
        for time in range(parameters.repeat):
            report = _crashed(host, sample.index, parameters.kernel)
            found = _logged(clock, sample, report, parameters.xid)
            at = max(report.launched_at, clock.wall_time(found[0].uptime_s or 0.0))
            if time == 0:
                written_at, logged_at = report.launched_at, at
                nvml_at = report.nvml.at if report.nvml else None
            lines += [*_words(parameters, report, at), *(f"kernel log: {event.line}" for event in found)]
        return Evidence(lines=tuple(lines), written_at=written_at, logged_at=logged_at, nvml_at=nvml_at)

    def undo(self, parameters: CudaCrashParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        ended = end_work(host, gpu_index(parameters, gpu), lambda report: report.error)
        return Evidence(lines=(*ended.lines, NOTHING_TO_UNDO))

    def verify_undone(self, parameters: CudaCrashParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        return not host.has_work(gpu_index(parameters, gpu))


def _refuse_others(parameters: CudaCrashParameters, sample: GpuSample, host: Host) -> None:
    """Refuse a GPU that MPS shares, or on which others compute and may not be disturbed. Raises HostError."""
    shared = [user.line for user in host.gpu_users(sample.index) if _MPS in user.command]
    if shared:
        raise HostError(
            f"GPU {sample.index} is shared by MPS ({'; '.join(shared[:3])}), and a crash ends the work of all its "
            "clients: choose another GPU, or stop MPS there: `echo quit | nvidia-cuda-mps-control`"
        )
    if parameters.beside_jobs:
        return
    if sample.compute_pids is None:
        raise HostError(
            f"NVML does not say which processes compute on GPU {sample.index}: if a job may see a crash beside it, "
            "write beside_jobs: true in the plan"
        )
    if sample.compute_pids:
        raise HostError(
            f"GPU {sample.index} has compute processes ({', '.join(map(str, sample.compute_pids[:5]))}): choose an "
            "idle GPU by fault.gpu or targets.seed, or write beside_jobs: true in the plan"
        )


def _crashed(host: Host, index: int, kernel: CrashKernel) -> CrashReport:
    """Crash a process, and return its last words; the process is gone afterwards. Raises HostError."""
    try:
        report: WorkReport = host.start_work(index, Crash(kernel=kernel))
    finally:
        host.end_work(index)
    if report.crash is None:
        raise HostError(f"the process on GPU {index} does not say how the kernel {kernel} ended")
    return report.crash


def _logged(clock: LogClock, sample: GpuSample, report: CrashReport, xid: int) -> list[KernelEvent]:
    """Return the driver's lines about the crash: the one that names the process, and those before it that name none.

    Raises:
        HostError: There is none within ten seconds, or it has another code.
    """
    found: list[KernelEvent] = []

    def is_there() -> bool:
        found[:] = _xids(clock.new_lines(), sample.pci_bus_id)
        return any(event.pid == report.pid for event in found)

    if not wait_until(is_there):
        pids = ", ".join(f"Xid {event.code} of {event.pid}" for event in found if event.pid) or "none"
        raise HostError(
            f"process {report.pid} ({report.command}) crashed ({report.error}), and the kernel log has no Xid of it on "
            f"GPU {sample.index}, {sample.pci_bus_id}; new ones with a process: {pids}. In a pod without hostPID, or a "
            "container of one's own, the kernel knows the process by another id: run the agent with hostPID"
        )
    place, own = next((at, event) for at, event in enumerate(found) if event.pid == report.pid)
    if own.code != xid:
        raise HostError(f"the driver wrote Xid {own.code} for process {report.pid}, not {xid}: {own.line}")
    begin = 1 + max((at for at, event in enumerate(found[:place]) if event.pid), default=-1)
    return found[begin : place + 1]


def _xids(lines: Iterator[str], pci: str) -> list[KernelEvent]:
    return [event for line in lines if (event := recognise(line)) and event.kind is Kind.XID and event.pci == pci]


def _words(parameters: CudaCrashParameters, report: CrashReport, logged_at: datetime) -> Iterator[str]:
    yield f"process {report.pid} ({report.command}), {parameters.kernel}: {report.error}"
    after = f"in the kernel log {_ms(logged_at - report.launched_at)} ms after its launch"
    event = report.nvml
    yield f"{after}; " + (
        f"NVML's event, Xid {event.code}, {_ms(event.at - logged_at)} ms later" if event else report.nvml_unseen
    )


def _ms(took: timedelta) -> str:
    return f"{1000 * took.total_seconds():.1f}"
