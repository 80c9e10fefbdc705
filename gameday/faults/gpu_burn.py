"""Load and heat: a GPU at work for as long as the fault is held, with every result checked."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from gameday.documents.fields import conflict
from gameday.errors import HostError
from gameday.faults.base import BUS, NODE, Claim, Evidence, Fault, Layer
from gameday.faults.gpu import GpuParameters, target_gpu
from gameday.faults.gpu_work import end_work, gpu_index, watch_work
from gameday.host.base import Burn, GpuSample, Host, WorkReport
from gameday.host.privileges import GPU_WORK, PodSecurity
from gameday.plan.models import FaultParameters


class GpuBurnParameters(GpuParameters):
    dangerous: ClassVar[str] = (
        "full power heats the GPU and its neighbours, and takes the GPU's time from whatever else runs on it; a card "
        "about to fail may fail now"
    )
    type: Literal["gpu_burn"] = "gpu_burn"
    utilization_pct: int = Field(default=100, ge=10, le=100)
    """Share of the time that the GPU computes."""
    precision: Literal["half", "single"] = "half"
    """half: the tensor cores, and the most heat; single: FP32, without them."""
    heat_to_c: int | None = Field(default=None, ge=30, le=90)
    """Load in turns so that the GPU stays at this temperature, degrees Celsius; None: load all the time."""
    ceiling_c: int = Field(default=85, ge=40, le=92)
    """The GPU temperature that ends the load immediately, whatever was asked for (93 is where health checks warn)."""

    @model_validator(mode="after")
    def _heat_stays_below_the_ceiling(self) -> GpuBurnParameters:
        if self.heat_to_c is not None and self.heat_to_c >= self.ceiling_c:
            raise conflict(
                ("heat_to_c",),
                f"heat_to_c ({self.heat_to_c}) must lie below ceiling_c ({self.ceiling_c}), which ends the load",
            )
        return self


class GpuBurnFault(Fault[GpuBurnParameters]):
    """GEMM after GEMM on one GPU, in a process that dies with the agent.

    The factors are random and every product is compared with the first, bit for bit: a single wrong element is a
    finding, silent data corruption. The temperature is read each second. The load ends at its ceiling, where it cannot
    be read, and where nobody steers the load for ten seconds.
    """

    parameters: ClassVar[type[FaultParameters]] = GpuBurnParameters
    layer: ClassVar[Layer] = Layer.HARDWARE_LOAD
    security: ClassVar[PodSecurity] = GPU_WORK
    summary: ClassVar[str] = "Loads and heats one GPU, checking every result"
    does_not_reach: ClassVar[str] = (
        "the kernel log and error counters, unless the GPU really fails under the load; other GPUs, but for the air "
        "and the power they share with it"
    )
    seen_by: ClassVar[tuple[str, ...]] = (
        "DCGM_FI_DEV_GPU_UTIL, _POWER_USAGE and _GPU_TEMP",
        "GPUThermalThrottling and GPUTemperatureHigh, where the cooling does not keep up",
        "GEMM rate and temperature in QA",
        "NVSentinel, which cordons on any thermal violation",
    )

    def claims(self, parameters: GpuBurnParameters) -> tuple[Claim, ...]:
        return (Claim("work", parameters.gpu), Claim(BUS, parameters.gpu, shared=True), Claim(NODE, shared=True))

    def warnings(self, parameters: GpuBurnParameters) -> tuple[str, ...]:
        return (
            f"dangerous: heat, up to {parameters.ceiling_c} °C; a job on the same GPU gets what is left of its time",
        )

    def prior_state(self, parameters: GpuBurnParameters, gpu: int, host: Host) -> dict[str, str]:
        sample = target_gpu(parameters, gpu, host)
        if (temperature := _temperature(sample)) >= parameters.ceiling_c:
            raise HostError(f"GPU {sample.index} is at {temperature:g} °C, and ceiling_c is {parameters.ceiling_c}")
        return {}

    def inject(self, parameters: GpuBurnParameters, gpu: int, host: Host) -> Evidence:
        self.prior_state(parameters, gpu, host)
        before = target_gpu(parameters, gpu, host)
        order = Burn(precision=parameters.precision, utilization=parameters.utilization_pct / 100)
        written_at = datetime.now(UTC)
        report = host.start_work(before.index, order)
        if not report.tflops:
            raise HostError(f"the load on GPU {before.index} began and multiplies nothing: {_figures(report)}")
        lines = (
            f"before: GPU {before.index} {_state(before)}",
            f"load of {parameters.utilization_pct} % begun: {report.tflops:.1f} TFLOP/s, {_figures(report)}",
            f"after {report.seconds:g} s: {_state(target_gpu(parameters, gpu, host))}",
        )
        return Evidence(lines=lines, written_at=written_at)

    def hold(self, parameters: GpuBurnParameters, gpu: int, host: Host, ended: threading.Event) -> tuple[str, ...]:
        index = gpu_index(parameters, gpu)
        peak, best, stopped, goal_after = 0.0, 0.0, "", None

        def look(report: WorkReport) -> bool:
            nonlocal peak, best, stopped, goal_after
            temperature = _temperature(target_gpu(parameters, gpu, host))
            peak, best = max(peak, temperature), max(best, report.tflops or 0.0)
            if temperature >= parameters.ceiling_c:
                stopped = f"the ceiling of {parameters.ceiling_c} °C ended the load after {report.seconds:.0f} s"
                host.end_work(index)
                return False
            goal = parameters.heat_to_c
            if goal is not None and temperature >= goal and goal_after is None:
                goal_after = report.seconds
            rests = goal is not None and temperature >= goal
            host.steer_work(index, 0.0 if rests else parameters.utilization_pct / 100)
            return True

        watch_work(host, index, ended, look)
        lines = [f"held: peak {peak:g} °C, best {best:.1f} TFLOP/s"]
        if parameters.heat_to_c is not None:
            reached = f"reached after {goal_after:.0f} s" if goal_after is not None else "never reached"
            lines.append(f"{parameters.heat_to_c} °C {reached}")
        return (*lines, stopped) if stopped else tuple(lines)

    def undo(self, parameters: GpuBurnParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        return end_work(host, gpu_index(parameters, gpu), _figures)

    def verify_undone(self, parameters: GpuBurnParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        return not host.has_work(gpu_index(parameters, gpu))


def _temperature(sample: GpuSample) -> float:
    """Return degrees Celsius. Raises HostError where NVML has none: without a temperature there is no ceiling."""
    if sample.temperature_c is None:
        raise HostError(f"NVML does not show the temperature of GPU {sample.index}: no load without it")
    return sample.temperature_c


def _state(sample: GpuSample) -> str:
    return f"{sample.temperature_c} °C, {sample.power_w} W, {sample.utilization_pct} % busy"


def _figures(report: WorkReport) -> str:
    wrong = report.wrong_results
    found = f"{wrong} ELEMENTS WRONG: silent data corruption" if wrong else "no element wrong"
    return f"{report.products} GEMM product(s) checked, {found}"
