"""What the faults on a GPU share: which one, its reading, who has it open, nvidia-smi with its refusals told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pydantic import Field

from gameday.errors import HostError
from gameday.host.base import GpuSample, Host
from gameday.plan.models import FaultParameters

SMI_WITHIN_S = 60.0
"""Without persistence mode every call initialises each GPU first, some seconds on a node of eight."""
PERSISTENCE_DAEMON = "nvidia-persistenced"
_SETTLES_WITHIN_S = 10.0
"""The driver initialises a GPU that comes back in a second or two; an undo as a whole has 15."""
_POLL_S = 0.2
_RESET = "nvidia-smi resets no GPU that is in use"


class GpuParameters(FaultParameters):
    gpu: int | None = Field(default=None, ge=0, le=63)
    """NVML index of the GPU; None: the one the run chose."""


def target(parameters: GpuParameters, gpu: int, host: Host) -> GpuSample:
    """The reading of the GPU that is meant, which answers. Raises HostError."""
    return answering(gpu if parameters.gpu is None else parameters.gpu, host)


def answering(index: int, host: Host) -> GpuSample:
    """The reading of the GPU of this index. Raises HostError where there is none, or it is lost."""
    gpus = {sample.index: sample for sample in host.gpus()}
    if index not in gpus:
        raise HostError(f"no GPU {index} on this node; NVML knows {sorted(gpus) or 'none'}")
    if gpus[index].lost:
        raise HostError(f"GPU {index} is lost (NVML); choose another GPU, or reboot the node")
    return gpus[index]


def again(parameters: GpuParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> GpuSample:
    """The GPU that was meant at injection: by UUID where that is known, as indices move when a GPU leaves the bus."""
    uuid = undo_state.get("uuid")
    if uuid is None:
        return target(parameters, gpu, host)
    for sample in host.gpus():
        if sample.uuid == uuid and not sample.lost:
            return sample
    raise HostError(f"GPU {uuid} is lost or gone from NVML; reboot the node, which also resets what was set")


def smi(host: Host, gpu: GpuSample, *arguments: str) -> str:
    """What `nvidia-smi -i UUID …` printed. Raises HostError, in the tool's own words, when it refuses."""
    done = host.run(["nvidia-smi", "-i", gpu.uuid, *arguments], SMI_WITHIN_S)
    said = done.output_line
    if done.exit_status:
        raise HostError(f"nvidia-smi {' '.join(arguments)} on GPU {gpu.index}: exit {done.exit_status}: {said}")
    return said


def smi_watts(host: Host, gpu: GpuSample, *fields: str) -> dict[str, float]:
    """Fields of --query-gpu, in watts. Raises HostError for what is no number, like a board's `[N/A]`."""
    printed = smi(host, gpu, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    values = [value.strip() for value in printed.split(",")]
    try:
        return dict(zip(fields, map(float, values), strict=True))
    except ValueError:
        raise HostError(f"nvidia-smi tells {printed[:100]!r} for {', '.join(fields)} of GPU {gpu.index}") from None


def refuse_users(host: Host, gpu: GpuSample, otherwise: str, *, but: str | None) -> None:
    """Raises HostError while any process, or any but one of that name, has the GPU open; `otherwise`: why that is bad.

    NVML's list of compute processes does not tell: a monitor that only reads has the device open too.
    """

    def users() -> list[str]:
        return [f"{u.pid} {u.command}" for u in host.gpu_users(gpu.index) if but is None or but not in u.command]

    # The daemon closes a GPU a moment after it was told to; nobody else is waited for.
    if (but is None and settles(lambda: not users())) or not (found := users()):
        return
    raise HostError(
        f"GPU {gpu.index} is open in {len(found)} process(es): {'; '.join(found[:3])}; {otherwise}: stop them first, "
        "monitors and the device plugin included"
    )


def refuse_reset(host: Host, gpu: GpuSample) -> None:
    """Raises HostError while a process has the GPU open that does not let go of it when persistence mode ends."""
    refuse_users(host, gpu, _RESET, but=PERSISTENCE_DAEMON)


@contextmanager
def ready_for_reset(host: Host, gpu: GpuSample, lines: list[str]) -> Iterator[None]:
    """Persistence mode, in which the driver or its daemon keeps the GPU open, is off meanwhile, where it was on.

    `nvidia-smi --gpu-reset` refuses "in use by another client" otherwise. What was done goes into `lines`.
    Raises HostError, naming them, while other processes have the GPU open, and where nvidia-smi refuses.
    """
    refuse_reset(host, gpu)
    if gpu.persistence_mode:
        lines.append(f"nvidia-smi -pm 0: {smi(host, gpu, '-pm', '0')}")
    try:
        refuse_users(host, gpu, _RESET, but=None)
        yield
    finally:
        if gpu.persistence_mode:
            lines.append(f"nvidia-smi -pm 1: {smi(host, gpu, '-pm', '1')}")


def settles(reached: Callable[[], bool]) -> bool:
    """Whether it is so within ten seconds."""
    deadline = time.monotonic() + _SETTLES_WITHIN_S
    while not reached():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True
