"""A job with a wrong NCCL variable: the canary itself, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar, Literal

from gameday.faults.base import CanaryJob, Claim, Evidence, Fault, Layer
from gameday.faults.nccl import NcclParameters, table
from gameday.host.base import Host
from gameday.host.privileges import PodSecurity
from gameday.plan.fault import FaultParameters


class NcclEnvironmentParameters(NcclParameters):
    needs_canary: ClassVar[bool] = True

    type: Literal["nccl_environment"] = "nccl_environment"


class NcclEnvironmentFault(Fault[NcclEnvironmentParameters]):
    """Gives the canary job a wrong environment, as a stale template or an old image does.

    While the fault is in, canaries carry the variables; the one in QA does not. The plan needs `expect.canary`, or
    `expect.all_reduce` with the backend nccl: its ranks carry the variables on every node.
    """

    parameters: ClassVar[type[FaultParameters]] = NcclEnvironmentParameters
    layer: ClassVar[Layer] = Layer.NETWORK
    security: ClassVar[PodSecurity] = PodSecurity(why="it changes nothing of the node, and asks nothing of it")
    summary: ClassVar[str] = "Gives the canary job wrong NCCL variables"
    does_not_reach: ClassVar[str] = (
        "any other job, the node, its kernel log, NVML, DCGM; with expect.canary, what only shows between nodes"
    )
    seen_by: ClassVar[tuple[str, ...]] = (
        "the canary's bus bandwidth",
        "bandwidth preflights, such as NVSentinel's, if they are switched on",
        "no other detector",
    )
    details: ClassVar[str] = table()

    def claims(self, parameters: NcclEnvironmentParameters) -> tuple[Claim, ...]:
        return (Claim("the canary's environment"),)

    def canary_job(self, parameters: NcclEnvironmentParameters) -> CanaryJob:
        return CanaryJob(environment=parameters.variables)

    def inject(self, parameters: NcclEnvironmentParameters, gpu: int, host: Host) -> Evidence:
        given = ", ".join(f"{name}={value}" for name, value in parameters.variables.items())
        lines = (f"canary jobs carry {given} from now on; nothing of the node is changed",)
        return Evidence(lines=lines, written_at=datetime.now(UTC))

    def undo(self, parameters: NcclEnvironmentParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        return Evidence(lines=("nothing of the node was changed; the next canary job carries no variables",))

    def verify_undone(
        self, parameters: NcclEnvironmentParameters, gpu: int, host: Host, undo_state: dict[str, str]
    ) -> bool:
        return True  # each canary has an environment of its own, which ends with it
