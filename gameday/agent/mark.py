"""Roles mark, gpu-users and sample: read the host, and write at most one harmless line to its kernel log."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from gameday.agent.context import Context
from gameday.agent.task import (
    AgentResult,
    DcgmEnginesNote,
    GpuPodsNote,
    GpuUserNote,
    GpuUsersTask,
    MarkTask,
    SampledGpu,
    SampledNote,
    SampleTask,
)
from gameday.faults.dcgm import is_collection_paused
from gameday.faults.dcgm_engines import look_at_engines
from gameday.faults.gpu import nvidia_smi, responding_gpu
from gameday.values.results import Cleanliness

_PRIORITY = "<6>"
"""Priority informational, so that no severity filter takes the line for a fault."""


def marker_line(marker: str) -> str:
    """Return the text of a run's marker in the kernel log."""
    return f"gameday: marker {marker}"


def mark(task: MarkTask, context: Context) -> AgentResult:
    """Write the run's marker to the kernel log and read it back; print what else the task asks for.

    Raises:
        HostError: The kernel log cannot be written or read, nvidia-smi does not answer for the GPU, or dcgmi for the
            node, or the GPUs' users cannot be read.
    """
    text = marker_line(task.marker)
    written_at = datetime.now(UTC)
    context.host.write_kernel_log(_PRIORITY + text)
    found = any(line.endswith(text) for line in context.host.read_kernel_log())
    if task.reset_gpu is not None:
        gpu = responding_gpu(task.reset_gpu, context.host)
        nvidia_smi(context.host, gpu, "--query-gpu=uuid", "--format=csv,noheader")
        for user in context.host.gpu_users(task.reset_gpu):
            context.print_note(GpuUserNote(user=user))
    looked_at = _print_pods(context) if task.gpu_pods else ()
    if task.needs_dcgmi:
        is_collection_paused(context.host)  # raises if dcgmi is missing or reaches no engine
    if task.dcgm_engines:
        seen = look_at_engines(context.host)
        context.print_note(DcgmEnginesNote.of(seen))
    return AgentResult(
        role=task.role,
        ok=found,
        cleanliness=Cleanliness.CLEAN,
        written_at=written_at,
        error="" if found else "the marker was written, but the kernel log does not hold it",
        evidence=(f"written: {_PRIORITY}{text}", f"read back: {'found' if found else 'not found'}", *looked_at),
    )


def gpu_users(task: GpuUsersTask, context: Context) -> AgentResult:
    """Print the pods that have a GPU open, one line for each GPU.

    Raises:
        HostError: NVML or the processes cannot be read.
    """
    looked_at = _print_pods(context)
    return AgentResult(role=task.role, ok=bool(looked_at), cleanliness=Cleanliness.CLEAN, evidence=looked_at)


def _print_pods(context: Context) -> tuple[str, ...]:
    """Print the pods that have a GPU open, one line for each GPU. Raises HostError.

    Returns:
        Evidence: how many GPUs were looked at, and which processes cannot be seen; empty without a GPU.
    """
    gpus = context.host.gpus()
    unseen: list[str] = []
    for gpu in gpus:
        users = context.host.gpu_users(gpu.index)
        pods = dict.fromkeys(user.pod for user in users if user.pod and user.seen)
        context.print_note(GpuPodsNote(gpu=gpu.index, pci=gpu.pci_bus_id, pods=tuple(pods)))
        unseen = [user.line for user in users if not user.seen]
    if not gpus:
        return ()
    more = [f"and {len(unseen) - 3} more"] if unseen[3:] else []
    return (f"{len(gpus)} GPU(s) looked at", *unseen[:3], *more)


def sample(task: SampleTask, context: Context) -> AgentResult:
    """Print a line for all GPUs every `interval_s`, at fixed times.

    A slow reading is followed by a pause of the same length: without persistence mode, each reading initialises the
    GPUs.

    Raises:
        HostError: NVML cannot be read.
    """
    timer = context.ending.after(task.duration_s)
    start, readings = time.monotonic(), 0
    while True:
        at, began = datetime.now(UTC), time.monotonic()
        gpus = tuple(map(SampledGpu.of, context.host.gpus()))
        context.print_note(SampledNote(at=at, gpus=gpus))
        readings += 1
        if readings == 1:
            context.become_ready()
        now = time.monotonic()
        if context.ending.event.wait(max(task.interval_s - (now - start) % task.interval_s, now - began)):
            break
    timer.cancel()
    return AgentResult(
        role=task.role,
        ok=True,
        cleanliness=Cleanliness.CLEAN,
        ended_by=context.ending.reason,
        evidence=(f"{readings} reading(s)",),
    )
