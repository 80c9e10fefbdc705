"""What the faults on a GPU share: which one, its reading, and nvidia-smi with its refusals told."""

from __future__ import annotations

from pydantic import Field

from gameday.host.base import GpuSample, Host, HostError
from gameday.plan.models import FaultParameters

SMI_WITHIN_S = 60.0
"""Without persistence mode every call initialises each GPU first, some seconds on a node of eight."""
_SAID_CHARACTERS = 300


class GpuParameters(FaultParameters):
    gpu: int | None = Field(default=None, ge=0, le=63)
    """NVML index of the GPU; None: the one the run chose."""


def target(parameters: GpuParameters, gpu: int, host: Host) -> GpuSample:
    """The reading of the GPU that is meant, which answers. Raises HostError."""
    index = gpu if parameters.gpu is None else parameters.gpu
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
    said = " ".join((done.stdout + " " + done.stderr).split())[:_SAID_CHARACTERS]
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
