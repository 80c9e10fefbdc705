"""A GPU reset: `nvidia-smi --gpu-reset`, with persistence mode off meanwhile."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import ClassVar

from gameday.errors import HostError
from gameday.faults.gpu import ready_for_reset
from gameday.host.base import GpuSample, Host
from gameday.host.privileges import GPU_PROGRAMS, PodSecurity
from gameday.remediations.base import Remediation

_RESET_TIMEOUT_S = 120.0
"""NVSentinel's own objective for one reset (docs/sources.md, NVSentinel)."""
_BACK_WITHIN_S = 30.0
_POLL_S = 0.25


class GpuReset(Remediation):
    """Resets one GPU, and writes the reset into the kernel log in the form that the node-health controller reads.

    It is refused, by us or by nvidia-smi, while any process has the GPU open, even a monitor like the device plugin or
    DCGM.
    """

    name: ClassVar[str] = "gpu-reset"
    summary: ClassVar[str] = "Resets the run's GPU with nvidia-smi"
    security: ClassVar[PodSecurity] = GPU_PROGRAMS
    needs_idle_gpu: ClassVar[bool] = True

    def repair(self, gpu: int | None, host: Host, lines: list[str]) -> None:
        before = _sample(host, gpu)
        if before is None:
            raise HostError(f"GPU {gpu} is not among those NVML knows; name one in the plan's `fault.gpu`")
        lines.append(f"before: GPU {before.index} {before.uuid or before.index} {'lost' if before.lost else 'answers'}")
        # NVML shows no persistence mode of a lost GPU, and nvidia-smi explains best what to do about it.
        with nullcontext() if before.lost else ready_for_reset(host, before, lines):
            _reset(host, before, lines)


def _reset(host: Host, before: GpuSample, lines: list[str]) -> None:
    """Reset the GPU and record the result. Raises HostError if it does not answer afterwards."""
    name = before.uuid or str(before.index)
    reset = host.run(["nvidia-smi", "--gpu-reset", "-i", name], _RESET_TIMEOUT_S)
    output = " ".join((reset.stdout + " " + reset.stderr).split())[:500]
    lines.append(f"nvidia-smi --gpu-reset -i {name}: exit {reset.exit_status}: {output}")
    after = _wait_until_back(host, before) if reset.exit_status == 0 else _sample(host, before.index)
    answers = after is not None and not after.lost
    success = reset.exit_status == 0 and answers
    lines.append(f"after: GPU {before.index} {'answers' if answers else 'does not answer'}")
    pci = before.pci_bus_id or (after.pci_bus_id if after else "")
    if pci:
        record = f"<6>gameday-agent: GPU reset executed: PCI:{pci}, success: {str(success).lower()}"
        host.write_kernel_log(record)
        lines.append(f"written: {record}")
    if not success:
        why = f"nvidia-smi refused: {output}" if reset.exit_status else f"not back within {_BACK_WITHIN_S:g} s"
        raise HostError(f"GPU {before.index}: {why}")


def _sample(host: Host, index: int | None) -> GpuSample | None:
    return next((gpu for gpu in host.gpus() if gpu.index == index), None)


def _wait_until_back(host: Host, before: GpuSample) -> GpuSample | None:
    """Return the GPU as soon as it answers, or its state after 30 s."""
    deadline = time.monotonic() + _BACK_WITHIN_S
    while True:
        found = _sample(host, before.index)
        if (found and not found.lost) or time.monotonic() > deadline:
            return found
        time.sleep(_POLL_S)
