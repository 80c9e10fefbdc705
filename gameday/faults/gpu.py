"""Functions that the faults on a GPU share: choose and read it, find the processes that use it, run nvidia-smi."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pydantic import Field

from gameday.errors import HostError
from gameday.host.base import GpuSample, Host
from gameday.plan.fault import FaultParameters

SMI_TIMEOUT_S = 60.0
"""Timeout of one call: without persistence mode nvidia-smi first initialises each GPU, some seconds on a node of
eight."""
PERSISTENCE_DAEMON = "nvidia-persistenced"
_WAIT_S = 10.0
"""The driver initialises a GPU that comes back in a second or two; an undo as a whole has 15."""
_POLL_S = 0.2
_RESET = "nvidia-smi resets no GPU that is in use"


class GpuParameters(FaultParameters):
    """Base of the parameters of faults on one GPU."""

    gpu: int | None = Field(default=None, ge=0, le=63)
    """NVML index of the GPU; None: the one the run chose."""


def target_gpu(parameters: GpuParameters, gpu: int, host: Host) -> GpuSample:
    """Return the reading of the plan's GPU, or of the run's choice if the plan names none. Raises HostError."""
    return responding_gpu(gpu if parameters.gpu is None else parameters.gpu, host)


def responding_gpu(index: int, host: Host) -> GpuSample:
    """Return the reading of the GPU with this NVML index. Raises HostError if there is none, or it is lost."""
    gpus = {sample.index: sample for sample in host.gpus()}
    if index not in gpus:
        raise HostError(f"no GPU {index} on this node; NVML knows {sorted(gpus) or 'none'}")
    if gpus[index].lost:
        raise HostError(f"GPU {index} is lost (NVML); choose another GPU, or reboot the node")
    return gpus[index]


def injected_gpu(parameters: GpuParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> GpuSample:
    """Return the reading of the GPU that the fault was injected into.

    It is found by its UUID if `undo_state` has it, because indices change when a GPU leaves the bus.

    Raises:
        HostError: The GPU is lost, or gone from NVML.
    """
    uuid = undo_state.get("uuid")
    if uuid is None:
        return target_gpu(parameters, gpu, host)
    for sample in host.gpus():
        if sample.uuid == uuid and not sample.lost:
            return sample
    raise HostError(f"GPU {uuid} is lost or gone from NVML; reboot the node, which also resets what was set")


def nvidia_smi(host: Host, gpu: GpuSample, *arguments: str) -> str:
    """Run `nvidia-smi -i UUID …` and return its output. Raises HostError with the output if it fails."""
    done = host.run(["nvidia-smi", "-i", gpu.uuid, *arguments], SMI_TIMEOUT_S)
    if done.exit_status:
        raise HostError(
            f"nvidia-smi {' '.join(arguments)} on GPU {gpu.index}: exit {done.exit_status}: {done.output_line}"
        )
    return done.output_line


def nvidia_smi_watts(host: Host, gpu: GpuSample, *fields: str) -> dict[str, float]:
    """Return fields of --query-gpu in watts. Raises HostError if one is not a number, like a board's `[N/A]`."""
    printed = nvidia_smi(host, gpu, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    values = [value.strip() for value in printed.split(",")]
    try:
        return dict(zip(fields, map(float, values), strict=True))
    except ValueError:
        raise HostError(f"nvidia-smi prints {printed[:100]!r} for {', '.join(fields)} of GPU {gpu.index}") from None


def refuse_while_open(host: Host, gpu: GpuSample, consequence: str, *, but: str | None) -> None:
    """Refuse a GPU that a process has open, even a monitor, which NVML's list of compute processes leaves out.

    Args:
        host: The node.
        gpu: The GPU.
        consequence: What would happen otherwise, for the message.
        but: Part of the command line of a process that does not count. None: all count, and it waits for the
            persistence daemon, which closes a GPU a moment after it was asked to.

    Raises:
        HostError: Processes have the GPU open, or cannot be seen; the message names the first three.
    """
    if but is None and wait_until(lambda: not others_open(host, gpu, but=None)):
        return
    if not (found := others_open(host, gpu, but=but)):
        return
    raise HostError(
        f"GPU {gpu.index} is open in {len(found)} process(es): {'; '.join(found[:3])}; {consequence}: stop them first, "
        "monitors and the device plugin included"
    )


def others_open(host: Host, gpu: GpuSample, *, but: str | None) -> list[str]:
    """Return the processes that have a GPU open or cannot be seen, a line each, without those with `but` in it."""
    return [user.line for user in host.gpu_users(gpu.index) if but is None or but not in user.command]


def refuse_reset(host: Host, gpu: GpuSample) -> None:
    """Refuse a GPU if another process than the persistence daemon has it open. Raises HostError."""
    refuse_while_open(host, gpu, _RESET, but=PERSISTENCE_DAEMON)


@contextmanager
def ready_for_reset(host: Host, gpu: GpuSample, lines: list[str]) -> Iterator[None]:
    """Turn persistence mode off for the block, and on again if it was on.

    In persistence mode the driver or its daemon keeps the GPU open, and `nvidia-smi --gpu-reset` refuses a GPU that is
    "in use by another client".

    Args:
        host: The node.
        gpu: The GPU.
        lines: Evidence, to which every call and its output is added.

    Raises:
        HostError: Other processes have the GPU open, or nvidia-smi refuses.
    """
    refuse_reset(host, gpu)
    if gpu.persistence_mode:
        lines.append(f"nvidia-smi -pm 0: {nvidia_smi(host, gpu, '-pm', '0')}")
    try:
        refuse_while_open(host, gpu, _RESET, but=None)
        yield
    finally:
        if gpu.persistence_mode:
            lines.append(f"nvidia-smi -pm 1: {nvidia_smi(host, gpu, '-pm', '1')}")


def wait_until(reached: Callable[[], bool]) -> bool:
    """Wait up to ten seconds for a condition; return True if it came true."""
    deadline = time.monotonic() + _WAIT_S
    while not reached():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True
