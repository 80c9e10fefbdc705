"""A power cap: the GPU may draw less power, so everything on it runs slower but nothing is broken."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar, Literal

from pydantic import Field

from gameday.errors import HostError
from gameday.faults.base import BUS, Claim, Evidence, Fault, Layer
from gameday.faults.gpu import GpuParameters, injected_gpu, nvidia_smi, nvidia_smi_watts, target_gpu
from gameday.host.base import GpuSample, Host
from gameday.host.privileges import GPU_PROGRAMS, PodSecurity
from gameday.plan.fault import FaultParameters

_LIMIT, _DEFAULT, _MIN, _MAX = "power.limit", "power.default_limit", "power.min_limit", "power.max_limit"
_SAME_W = 1.0
"""The driver keeps milliwatts and boards round to their own steps."""


class PowerCapParameters(GpuParameters):
    type: Literal["power_cap"] = "power_cap"
    watts: float = Field(ge=50, le=2000, allow_inf_nan=False)
    """The new limit; the board's own bounds (an H100 SXM: 200 to 700 W) are read before anything is changed."""


class PowerCapFault(Fault[PowerCapParameters]):
    """Lowers one GPU's power limit with `nvidia-smi -pl`, and restores the limit it had.

    Without persistence mode the driver forgets a limit as soon as nobody uses the GPU, so such a GPU is refused. If the
    prior limit is not known (the agent was killed while it injected), the undo sets the board's default, and only if
    the limit is still ours.
    """

    parameters: ClassVar[type[FaultParameters]] = PowerCapParameters
    layer: ClassVar[Layer] = Layer.NVML
    security: ClassVar[PodSecurity] = GPU_PROGRAMS
    summary: ClassVar[str] = "Lowers one GPU's power limit, which slows down everything that runs on it"
    does_not_reach: ClassVar[str] = "the kernel log, ECC and health counters: a cap is no error"
    seen_by: ClassVar[tuple[str, ...]] = (
        "GEMM rate and power limit in QA",
        "DCGM_FI_DEV_POWER_VIOLATION and DCGM_FI_DEV_POWER_MGMT_LIMIT, if dcgm-exporter exports them",
        "straggler checks of a training job (Google's cluster-health-scanner)",
    )

    def claims(self, parameters: PowerCapParameters) -> tuple[Claim, ...]:
        return (Claim("power limit", parameters.gpu), Claim(BUS, parameters.gpu, shared=True))

    def warnings(self, parameters: PowerCapParameters) -> tuple[str, ...]:
        return (f"a job over several GPUs runs at the pace of the one that is capped to {parameters.watts:g} W",)

    def prior_state(self, parameters: PowerCapParameters, gpu: int, host: Host) -> dict[str, str]:
        sample = target_gpu(parameters, gpu, host)
        if sample.persistence_mode is False:
            raise HostError(
                f"GPU {sample.index} is not in persistence mode: the driver would forget a cap; `nvidia-smi -pm 1`"
            )
        read = nvidia_smi_watts(host, sample, _LIMIT, _MIN, _MAX)
        if not read[_MIN] <= parameters.watts <= read[_MAX]:
            raise HostError(
                f"GPU {sample.index} takes power limits from {read[_MIN]:g} to {read[_MAX]:g} W, "
                f"not {parameters.watts:g} W"
            )
        if read[_LIMIT] <= parameters.watts + _SAME_W:
            raise HostError(
                f"GPU {sample.index} is limited to {read[_LIMIT]:g} W already: {parameters.watts:g} W would cap nothing"
            )
        return {"uuid": sample.uuid, "watts": f"{read[_LIMIT]:g}"}

    def inject(self, parameters: PowerCapParameters, gpu: int, host: Host) -> Evidence:
        before = self.prior_state(parameters, gpu, host)
        sample = target_gpu(parameters, gpu, host)
        written_at = datetime.now(UTC)
        output = nvidia_smi(host, sample, "-pl", f"{parameters.watts:g}")
        limit, enforced = _limits(parameters, gpu, host, before)
        if abs(limit - parameters.watts) > _SAME_W or (enforced is not None and enforced > parameters.watts + _SAME_W):
            raise HostError(
                f"nvidia-smi -pl {parameters.watts:g} printed {output!r}, and reading back shows {limit:g} W "
                f"(NVML enforces {enforced} W) on GPU {sample.index}"
            )
        lines = (
            f"before: GPU {sample.index} {sample.uuid} limited to {before['watts']} W, draws {sample.power_w} W",
            f"nvidia-smi -pl {parameters.watts:g}: {output}",
            f"after: limited to {limit:g} W; NVML enforces {enforced} W",
        )
        return Evidence(lines=lines, written_at=written_at, undo_state=before)

    def undo(self, parameters: PowerCapParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        sample = injected_gpu(parameters, gpu, host, undo_state)
        read = nvidia_smi_watts(host, sample, _LIMIT, _DEFAULT)
        if "watts" in undo_state:
            wanted, why = float(undo_state["watts"]), "what it was"
        elif abs(read[_LIMIT] - parameters.watts) <= _SAME_W:
            wanted, why = read[_DEFAULT], "the board's default, because the earlier limit is not known"
        else:
            return Evidence(lines=(f"GPU {sample.index}: the limit of {read[_LIMIT]:g} W is not ours: left as it is",))
        return Evidence(lines=(f"nvidia-smi -pl {wanted:g} ({why}): {nvidia_smi(host, sample, '-pl', f'{wanted:g}')}",))

    def verify_undone(self, parameters: PowerCapParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        limit, _ = _limits(parameters, gpu, host, undo_state)
        if "watts" in undo_state:
            return abs(limit - float(undo_state["watts"])) <= _SAME_W
        return abs(limit - parameters.watts) > _SAME_W


def _limits(
    parameters: PowerCapParameters, gpu: int, host: Host, undo_state: dict[str, str]
) -> tuple[float, float | None]:
    """Read the configured limit and the one that NVML enforces, in watts; None if NVML does not show it."""
    sample: GpuSample = injected_gpu(parameters, gpu, host, undo_state)
    return nvidia_smi_watts(host, sample, _LIMIT)[_LIMIT], sample.power_limit_w
