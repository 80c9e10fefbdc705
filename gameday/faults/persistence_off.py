"""Persistence mode off: the driver lets go of a GPU as soon as nobody uses it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar, Literal

from gameday.errors import HostError
from gameday.faults.base import BUS, Claim, Evidence, Fault, Layer, NodeNeeds
from gameday.faults.gpu import GpuParameters, injected_gpu, nvidia_smi, target_gpu
from gameday.host.base import Host
from gameday.host.privileges import GPU_PROGRAMS, PodSecurity
from gameday.plan.fault import FaultParameters


class PersistenceOffParameters(GpuParameters):
    type: Literal["persistence_off"] = "persistence_off"


class PersistenceOffFault(Fault[PersistenceOffParameters]):
    """Turns one GPU's persistence mode off with `nvidia-smi -pm 0`, and on again.

    A GPU that has it off already is refused, so the undo always turns it on.
    """

    parameters: ClassVar[type[FaultParameters]] = PersistenceOffParameters
    layer: ClassVar[Layer] = Layer.NVML
    security: ClassVar[PodSecurity] = GPU_PROGRAMS
    summary: ClassVar[str] = "Turns one GPU's persistence mode off"
    does_not_reach: ClassVar[str] = "running work, the kernel log, DCGM's health watches; nvidia-persistenced goes on"
    seen_by: ClassVar[tuple[str, ...]] = (
        "persistence mode in QA",
        "gpud (persistence-mode component)",
        "dcgmi diag level 1",
    )

    def claims(self, parameters: PersistenceOffParameters) -> tuple[Claim, ...]:
        return (
            Claim("persistence mode", parameters.gpu),
            Claim(BUS, parameters.gpu, shared=True),
        )

    def needs(self, parameters: PersistenceOffParameters) -> NodeNeeds:
        return NodeNeeds(idle_gpu=True)

    def warnings(self, parameters: PersistenceOffParameters) -> tuple[str, ...]:
        return (
            "while nobody uses the GPU its driver forgets power caps and clock locks and clears volatile ECC counters; "
            "the next user waits for its initialisation",
        )

    def prior_state(self, parameters: PersistenceOffParameters, gpu: int, host: Host) -> dict[str, str]:
        sample = target_gpu(parameters, gpu, host)
        if sample.persistence_mode is None:
            raise HostError(f"NVML does not show the persistence mode of GPU {sample.index}: it could not be restored")
        if not sample.persistence_mode:
            raise HostError(f"GPU {sample.index} is not in persistence mode: there is nothing to turn off")
        return {"uuid": sample.uuid}

    def inject(self, parameters: PersistenceOffParameters, gpu: int, host: Host) -> Evidence:
        before = self.prior_state(parameters, gpu, host)
        sample = target_gpu(parameters, gpu, host)
        written_at = datetime.now(UTC)
        output = nvidia_smi(host, sample, "-pm", "0")
        if injected_gpu(parameters, gpu, host, before).persistence_mode is not False:
            raise HostError(f"nvidia-smi -pm 0 printed {output!r}, and GPU {sample.index} is still in persistence mode")
        lines = (
            f"before: GPU {sample.index} {sample.uuid} in persistence mode",
            f"nvidia-smi -pm 0: {output}",
            "after: not in persistence mode",
        )
        return Evidence(lines=lines, written_at=written_at, undo_state=before)

    def undo(self, parameters: PersistenceOffParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        sample = injected_gpu(parameters, gpu, host, undo_state)
        return Evidence(lines=(f"nvidia-smi -pm 1: {nvidia_smi(host, sample, '-pm', '1')}",))

    def verify_undone(
        self, parameters: PersistenceOffParameters, gpu: int, host: Host, undo_state: dict[str, str]
    ) -> bool:
        return injected_gpu(parameters, gpu, host, undo_state).persistence_mode is True
