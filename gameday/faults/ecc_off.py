"""ECC switched off: memory errors are neither corrected nor counted any more."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar, Literal

from gameday.errors import HostError
from gameday.faults.base import BUS, Claim, Evidence, Fault, Layer, NodeNeeds
from gameday.faults.gpu import (
    PERSISTENCE_DAEMON,
    GpuParameters,
    injected_gpu,
    nvidia_smi,
    others_open,
    ready_for_reset,
    refuse_reset,
    target_gpu,
    wait_until,
)
from gameday.host.base import GpuSample, Host
from gameday.host.privileges import GPU_PROGRAMS, PodSecurity
from gameday.plan.fault import FaultParameters


class EccOffParameters(GpuParameters):
    dangerous: ClassVar[str] = (
        "a reset or a boot while the fault is in turns ECC off for real; from then on memory errors corrupt results "
        "silently, and only another reset turns ECC on again"
    )
    type: Literal["ecc_off"] = "ecc_off"
    reset: bool = False
    """Reset the GPU too, so that the mode in force changes and not only the pending one. Nothing may use the GPU."""


class EccOffFault(Fault[EccOffParameters]):
    """Sets one GPU's pending ECC mode to off with `nvidia-smi -e 0`, and back to on.

    The mode in force changes at the next reset of the GPU or boot of the node. Without `reset` only the pending mode
    changes. With `reset` the GPU is reset on the way in and on the way out; the GPU operator's operands leave the node
    for each reset and come back in between. The agent cannot send them away at its own deadline; the reaper does it
    then.
    """

    parameters: ClassVar[type[FaultParameters]] = EccOffParameters
    layer: ClassVar[Layer] = Layer.NVML
    security: ClassVar[PodSecurity] = GPU_PROGRAMS
    summary: ClassVar[str] = "Turns ECC off on one GPU, from its next reset on"
    does_not_reach: ClassVar[str] = (
        "the mode in force, until the GPU is reset or the node boots; the kernel log; DCGM's counters, which only "
        "stand still once ECC is off"
    )
    seen_by: ClassVar[tuple[str, ...]] = ("ECC mode in QA, current and pending",)

    def claims(self, parameters: EccOffParameters) -> tuple[Claim, ...]:
        return (Claim("ECC mode", parameters.gpu), Claim(BUS, parameters.gpu, shared=True))

    def needs(self, parameters: EccOffParameters) -> NodeNeeds:
        return NodeNeeds(
            idle_gpu=parameters.reset, operands_away=parameters.reset, operands_away_to_undo=parameters.reset
        )

    def warnings(self, parameters: EccOffParameters) -> tuple[str, ...]:
        if parameters.reset:
            return ("dangerous: resets the GPU twice; everything that runs on it must be gone before",)
        return ("dangerous: a reset or boot of the node while the fault is in turns ECC off for real",)

    def prior_state(self, parameters: EccOffParameters, gpu: int, host: Host) -> dict[str, str]:
        sample = target_gpu(parameters, gpu, host)
        if sample.ecc_mode is None or sample.ecc_mode_pending is None:
            raise HostError(
                f"NVML does not show the ECC mode of GPU {sample.index}: it has none, or shows it to root only"
            )
        if not (sample.ecc_mode and sample.ecc_mode_pending):
            raise HostError(f"ECC of GPU {sample.index} is {_mode(sample)}: there is nothing to turn off")
        if parameters.reset:
            refuse_reset(host, sample)
        return {"uuid": sample.uuid}

    def inject(self, parameters: EccOffParameters, gpu: int, host: Host) -> Evidence:
        before = self.prior_state(parameters, gpu, host)
        sample = target_gpu(parameters, gpu, host)
        written_at = datetime.now(UTC)
        lines = [f"before: ECC of GPU {sample.index} {sample.uuid} is {_mode(sample)}"]
        lines.append(f"nvidia-smi -e 0: {nvidia_smi(host, sample, '-e', '0')}")
        if parameters.reset:
            _reset(host, sample, lines)
        after = injected_gpu(parameters, gpu, host, before)
        if after.ecc_mode_pending is not False or (parameters.reset and after.ecc_mode is not False):
            raise HostError(f"{'; '.join(lines[1:])}; and ECC of GPU {sample.index} reads {_mode(after)}")
        return Evidence(lines=(*lines, f"after: {_mode(after)}"), written_at=written_at, undo_state=before)

    def undo(self, parameters: EccOffParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        sample = injected_gpu(parameters, gpu, host, undo_state)
        lines = [f"nvidia-smi -e 1: {nvidia_smi(host, sample, '-e', '1')}"]
        if sample.ecc_mode is False and parameters.reset:
            wait_until(lambda: not others_open(host, sample, but=PERSISTENCE_DAEMON))  # operands that leave the node
            _reset(host, sample, lines)
        elif sample.ecc_mode is False:
            lines.append("somebody reset the GPU meanwhile, and ECC is off: a GPU reset or a reboot turns it on")
        return Evidence(lines=tuple(lines))

    def verify_undone(self, parameters: EccOffParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        sample = injected_gpu(parameters, gpu, host, undo_state)
        return sample.ecc_mode is True and sample.ecc_mode_pending is True


def _reset(host: Host, sample: GpuSample, lines: list[str]) -> None:
    """Reset the GPU, and add the evidence to `lines`. Raises HostError."""
    with ready_for_reset(host, sample, lines):
        lines.append(f"nvidia-smi --gpu-reset: {nvidia_smi(host, sample, '--gpu-reset')}")


def _mode(sample: GpuSample) -> str:
    words = {True: "on", False: "off", None: "not known"}
    return f"{words[sample.ecc_mode]}, {words[sample.ecc_mode_pending]} after a reset"
