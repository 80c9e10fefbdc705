"""Roles mark and sample: what the agent does without touching anything."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from gameday.agent.context import Context
from gameday.agent.task import GpuUserNote, MarkTask, Outcome, SampledNote, SampleTask
from gameday.faults.gpu import nvidia_smi, responding_gpu
from gameday.values.results import Cleanliness

_PRIORITY = "<6>"
"""Informational: no detector's pattern and no severity filter may take it for a fault."""


def marker_line(marker: str) -> str:
    return f"gameday: marker {marker}"


def mark(task: MarkTask, context: Context) -> Outcome:
    """Write `gameday: marker ID` to the kernel log and read it back; look at the GPU to be reset. Raises HostError."""
    text = marker_line(task.marker)
    written_at = datetime.now(UTC)
    context.host.write_kernel_log(_PRIORITY + text)
    found = any(line.endswith(text) for line in context.host.read_kernel_log())
    if task.reset_gpu is not None:
        gpu = responding_gpu(task.reset_gpu, context.host)
        nvidia_smi(context.host, gpu, "--query-gpu=uuid", "--format=csv,noheader")
        for user in context.host.gpu_users(task.reset_gpu):
            context.say(GpuUserNote(user=user))
    return Outcome(
        role=task.role,
        ok=found,
        cleanliness=Cleanliness.CLEAN,
        written_at=written_at,
        error="" if found else "the marker was written and is not in the kernel log on reading back",
        evidence=(f"written: {_PRIORITY}{text}", f"read back: {'found' if found else 'not found'}"),
    )


def sample(task: SampleTask, context: Context) -> Outcome:
    """A line per GPU each `interval_s`, by the clock and not by the pause. Raises HostError."""
    timer = context.ending.after(task.duration_s)
    start, readings = time.monotonic(), 0
    while True:
        at = datetime.now(UTC)
        for gpu in context.host.gpus():
            context.say(SampledNote(at=at, gpu=gpu))
        readings += 1
        if readings == 1:
            context.become_ready()
        behind = (time.monotonic() - start) % task.interval_s
        if context.ending.event.wait(task.interval_s - behind):
            break
    timer.cancel()
    return Outcome(
        role=task.role,
        ok=True,
        cleanliness=Cleanliness.CLEAN,
        ended_by=context.ending.reason,
        evidence=(f"{readings} reading(s)",),
    )
