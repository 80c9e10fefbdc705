"""A GPU with full memory, or with free memory in pieces too small to use."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import ClassVar, Literal

from pydantic import Field

from gameday.errors import HostError
from gameday.faults.base import BUS, Claim, Evidence, Fault, Layer
from gameday.faults.gpu import GpuParameters, target_gpu
from gameday.faults.gpu_work import end_work, gpu_index, watch_work
from gameday.host.base import GpuSample, HoldMemory, Host, WorkReport
from gameday.host.privileges import GPU_WORK, PodSecurity
from gameday.plan.fault import FaultParameters
from gameday.values.memory import MemoryBlocks

_MIB = 1 << 20
_SHARE_SHOWN = 0.9
"""The least share of the taken memory that NVML must show: jobs may free some in the same moment."""


class GpuMemoryParameters(GpuParameters):
    dangerous: ClassVar[str] = (
        "a job on the same GPU that allocates while the fault is in gets out-of-memory, and most end by it"
    )
    type: Literal["gpu_memory"] = "gpu_memory"
    mode: Literal["exhaust", "fragment"] = "exhaust"
    """exhaust: all of it is in use; fragment: every other block is in use, the rest is in pieces of `block_mib`."""
    leave_mib: int = Field(default=512, ge=64, le=1_000_000)
    """MiB left free for everybody else."""
    block_mib: int = Field(default=64, ge=2, le=4096)
    """MiB of one block in mode fragment; the driver's own granule is 2."""


class GpuMemoryFault(Fault[GpuMemoryParameters]):
    """Takes a GPU's free memory and keeps it, in a process that dies with the agent.

    Fragmentation happens in the allocator, not in the device: the driver maps physical memory freely, so only the
    process that holds the memory sees the pieces, like a training framework that has reserved much more than it uses
    (docs/sources.md, Load, clocks and memory). To others both modes look the same: no memory is left.
    """

    parameters: ClassVar[type[FaultParameters]] = GpuMemoryParameters
    layer: ClassVar[Layer] = Layer.HARDWARE_LOAD
    security: ClassVar[PodSecurity] = GPU_WORK
    summary: ClassVar[str] = "Takes one GPU's memory, all but a rest, or fragments it"
    does_not_reach: ClassVar[str] = (
        "the kernel log and the health counters: running out of memory is no Xid; memory that others hold already"
    )
    seen_by: ClassVar[tuple[str, ...]] = (
        "free memory in QA, if the plan gives it a floor",
        "the pieces: the largest block that can still be allocated, if the plan measures it",
        "DCGM_FI_DEV_FB_USED and _FB_FREE, with a GPU that is not busy",
        "jobs: CUDA out of memory",
    )

    def claims(self, parameters: GpuMemoryParameters) -> tuple[Claim, ...]:
        return (Claim("work", parameters.gpu), Claim(BUS, parameters.gpu, shared=True))

    def warnings(self, parameters: GpuMemoryParameters) -> tuple[str, ...]:
        return (f"dangerous: jobs on the same GPU share the last {parameters.leave_mib} MiB",)

    def prior_state(self, parameters: GpuMemoryParameters, gpu: int, host: Host) -> dict[str, str]:
        _used(target_gpu(parameters, gpu, host))
        return {}

    def inject(self, parameters: GpuMemoryParameters, gpu: int, host: Host) -> Evidence:
        before = target_gpu(parameters, gpu, host)
        used = _used(before)
        fragments = parameters.mode == "fragment"
        order = HoldMemory(
            leave_bytes=parameters.leave_mib * _MIB, block_bytes=parameters.block_mib * _MIB if fragments else None
        )
        written_at = datetime.now(UTC)
        report = host.start_work(before.index, order)
        now = _used(target_gpu(parameters, gpu, host))
        if not report.held_bytes or now - used < _SHARE_SHOWN * report.held_bytes:
            raise HostError(
                f"{_figures(report)}; but NVML shows {now // _MIB} MiB of GPU {before.index} in use after "
                f"{used // _MIB} before"
            )
        lines = (
            f"before: GPU {before.index} had {used // _MIB} MiB in use, of {(before.memory_total_bytes or 0) // _MIB}",
            _figures(report),
            f"after: NVML shows {now // _MIB} MiB in use",
        )
        return Evidence(lines=lines, written_at=written_at, memory=_blocks(report))

    def hold(self, parameters: GpuMemoryParameters, gpu: int, host: Host, ended: threading.Event) -> None:
        watch_work(host, gpu_index(parameters, gpu), ended, lambda _: True)

    def undo(self, parameters: GpuMemoryParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        return end_work(host, gpu_index(parameters, gpu), _figures)

    def verify_undone(self, parameters: GpuMemoryParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        return not host.has_work(gpu_index(parameters, gpu))


def _used(sample: GpuSample) -> int:
    """Return the bytes in use. Raises HostError if NVML does not show them."""
    if sample.memory_used_bytes is None:
        raise HostError(f"NVML does not show the memory of GPU {sample.index}: what is taken could not be proved")
    return sample.memory_used_bytes


def _blocks(report: WorkReport) -> MemoryBlocks | None:
    """Return the free blocks that the process with the memory reports; None if it reports none."""
    free = (report.free_bytes or 0) + (report.unused_bytes or 0)
    if report.largest_block_bytes is None or not free:
        return None
    return MemoryBlocks(free_bytes=free, largest_bytes=report.largest_block_bytes)


def _figures(report: WorkReport) -> str:
    held, unused, free, largest = (
        "?" if value is None else value // _MIB
        for value in (report.held_bytes, report.unused_bytes, report.free_bytes, report.largest_block_bytes)
    )
    return f"holds {held} MiB, {unused} of them not in use; {free} MiB free; the largest block left is {largest} MiB"
