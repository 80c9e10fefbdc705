"""Load and heat: a GPU computes for as long as the fault is held, and every result is checked."""

from __future__ import annotations

import math
import threading
import time
from datetime import UTC, datetime
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from gameday.documents.fields import conflict
from gameday.errors import HostError
from gameday.faults.base import BUS, Claim, Evidence, Fault, Layer
from gameday.faults.gpu import GpuParameters, target_gpu
from gameday.faults.gpu_work import end_work, gpu_index, watch_work
from gameday.host.base import Burn, GpuSample, Host, Precision, WorkReport
from gameday.host.clock_reasons import THERMAL_SLOWDOWN, named
from gameday.host.privileges import GPU_WORK, PodSecurity
from gameday.plan.fault import FaultParameters

_COOLS_WITHIN_S = 10.0  # our choice: a third of the grace period that a kubelet gives the agent's pod
_LOOK_EVERY_S = 0.2
_LOAD_STEP = 0.05
"""Change of the load by each look at a GPU that is too hot or too cold. A die follows its load within a second
(docs/sources.md, A recorded GPU): all or nothing would move it by 15 °C each time, so the load has to come to the share
that holds the goal."""


class GpuBurnParameters(GpuParameters):
    dangerous: ClassVar[str] = (
        "full power heats the GPU and its neighbours, and takes the GPU's time from everything else that runs on it; "
        "a card about to fail may fail now"
    )
    type: Literal["gpu_burn"] = "gpu_burn"
    utilization_pct: int = Field(default=100, ge=10, le=100)
    """Share of the time that the GPU computes."""
    precision: Precision = "half"
    """half: FP16 on the tensor cores, the most heat; bf16: BF16 there (extra `gpu`); single: FP32, without tensor
    cores."""
    heat_to_c: int | None = Field(default=None, ge=30, le=90)
    """Load in turns so that the GPU stays at this temperature, degrees Celsius; None: load all the time."""
    until_throttled: bool = False
    """Load until NVML says that the GPU slows down because of heat, then keep it there; needs a ceiling_c."""
    ceiling_c: int = Field(default=85, ge=40, le=92)
    """The GPU temperature that always ends the load immediately (health checks warn at 93)."""

    @model_validator(mode="after")
    def _throttling_has_a_ceiling_of_its_own(self) -> GpuBurnParameters:
        if self.until_throttled and self.heat_to_c is not None:
            raise conflict(("until_throttled",), "until_throttled and heat_to_c are two goals: write one of them")
        if self.until_throttled and "ceiling_c" not in self.model_fields_set:
            raise conflict(
                ("until_throttled",),
                f"write ceiling_c beside until_throttled: many models throttle above the default of {self.ceiling_c} "
                "(docs/sources.md, GPU temperatures). `nvidia-smi -q -d TEMPERATURE` shows where yours does; a few "
                "degrees more are the ceiling, at most 92",
            )
        return self

    @model_validator(mode="after")
    def _heat_stays_below_the_ceiling(self) -> GpuBurnParameters:
        if self.heat_to_c is not None and self.heat_to_c >= self.ceiling_c:
            raise conflict(
                ("heat_to_c",),
                f"heat_to_c ({self.heat_to_c}) must lie below ceiling_c ({self.ceiling_c}), which ends the load",
            )
        return self


class GpuBurnFault(Fault[GpuBurnParameters]):
    """Runs GEMM after GEMM on one GPU, in a process that dies with the agent.

    Every product is compared with the first, bit for bit: a single wrong element is silent data corruption. The
    temperature is read each second. The load ends when it reaches the ceiling or cannot be read, and when nobody has
    controlled the load for ten seconds. With `until_throttled` the GPU is refused unless the ceiling is above the
    temperature at which NVML says that it slows down by itself.
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
        "GPUThermalThrottling and GPUTemperatureHigh, if the cooling does not keep up",
        "GEMM rate and temperature in QA",
        "NVSentinel, which cordons on any thermal violation",
    )

    def claims(self, parameters: GpuBurnParameters) -> tuple[Claim, ...]:
        return (Claim("work", parameters.gpu), Claim(BUS, parameters.gpu, shared=True))

    def warnings(self, parameters: GpuBurnParameters) -> tuple[str, ...]:
        return (
            f"dangerous: heat, up to {parameters.ceiling_c} °C; a job on the same GPU gets what is left of its time",
        )

    def prior_state(self, parameters: GpuBurnParameters, gpu: int, host: Host) -> dict[str, str]:
        sample = target_gpu(parameters, gpu, host)
        if (temperature := _temperature(sample)) >= parameters.ceiling_c:
            raise HostError(f"GPU {sample.index} is at {temperature:g} °C, and ceiling_c is {parameters.ceiling_c}")
        if parameters.until_throttled:
            _refuse_proof_of_nothing(sample, parameters.ceiling_c)
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
            f"load of {parameters.utilization_pct} % begun, precision {parameters.precision}: "
            f"{report.tflops:.1f} TFLOP/s, {_figures(report)}",
            f"after {report.seconds:g} s: {_state(target_gpu(parameters, gpu, host))}",
        )
        return Evidence(lines=lines, written_at=written_at)

    def hold(self, parameters: GpuBurnParameters, gpu: int, host: Host, ended: threading.Event) -> tuple[str, ...]:
        index, heat = gpu_index(parameters, gpu), _Heat(parameters)

        def look(report: WorkReport) -> bool:
            heat.see(target_gpu(parameters, gpu, host), report)
            if heat.at_ceiling:
                host.end_work(index)
                return False
            host.steer_work(index, heat.load)
            return True

        watch_work(host, index, ended, look)
        return heat.lines()

    def undo(self, parameters: GpuBurnParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        ended = end_work(host, gpu_index(parameters, gpu), _figures)
        if not parameters.until_throttled:
            return ended
        return Evidence(lines=(*ended.lines, _cooled(parameters, gpu, host)))

    def verify_undone(self, parameters: GpuBurnParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        return not host.has_work(gpu_index(parameters, gpu))


class _Heat:
    """The heat during one hold, the temperature above which the load rests, and its share below it."""

    def __init__(self, parameters: GpuBurnParameters) -> None:
        self._parameters = parameters
        self._goal: float | None = parameters.heat_to_c
        self._share = self._most = parameters.utilization_pct / 100
        self._rests = False
        self._seconds, self._now, self._peak, self._best = 0.0, 0.0, 0.0, 0.0
        self._reached_after: float | None = None
        self._throttled = ""
        self._looks_since, self._throttled_since = 0, 0

    def see(self, gpu: GpuSample, report: WorkReport) -> None:
        """Take one reading of the GPU and of its work."""
        self._seconds, self._now = report.seconds, _temperature(gpu)
        self._peak, self._best = max(self._peak, self._now), max(self._best, report.tflops or 0.0)
        if self._parameters.until_throttled:
            self._look_for_throttling((gpu.clocks_event_reasons or 0) & THERMAL_SLOWDOWN)
        elif self._goal is not None and self._now >= self._goal and self._reached_after is None:
            self._reached_after = self._seconds
        if self._goal is not None:
            rested, self._rests = self._rests, self._now > self._goal + 1
            if self._now > self._goal:
                self._share = max(0.0, self._share - _LOAD_STEP)
            elif self._now < self._goal and not rested:
                self._share = min(self._most, self._share + _LOAD_STEP)

    def _look_for_throttling(self, reasons: int) -> None:
        if reasons and not self._throttled:
            self._throttled = f"throttled after {self._seconds:.0f} s at {self._now:g} °C: {named(reasons)}"
            self._goal = self._now  # at that temperature it goes on, well above it the GPU cools
        if self._throttled:
            self._looks_since += 1
            self._throttled_since += bool(reasons)

    @property
    def at_ceiling(self) -> bool:
        return self._now >= self._parameters.ceiling_c

    @property
    def load(self) -> float:
        """Share of the time that the GPU is to compute from now on."""
        return 0.0 if self._rests else self._share

    def lines(self) -> tuple[str, ...]:
        """Return the results of the hold, for the evidence."""
        lines = [f"held: peak {self._peak:g} °C, best {self._best:.1f} TFLOP/s"]
        if self._parameters.heat_to_c is not None:
            after = self._reached_after
            reached = f"reached after {after:.0f} s" if after is not None else "never reached"
            lines.append(f"{self._parameters.heat_to_c} °C {reached}")
        if self._throttled:
            share = self._throttled_since / self._looks_since
            lines.append(f"{self._throttled}; slowed in {share:.0%} of the readings since")
        elif self._parameters.until_throttled and not self.at_ceiling:
            lines.append(f"never throttled in {self._seconds:.0f} s: the cooling keeps up, and no alert of heat is due")
        if self.at_ceiling:
            first = ", before it throttled" if self._parameters.until_throttled and not self._throttled else ""
            lines.append(
                f"the ceiling of {self._parameters.ceiling_c} °C ended the load after {self._seconds:.0f} s{first}"
            )
        return tuple(lines)


def _cooled(parameters: GpuBurnParameters, gpu: int, host: Host) -> str:
    """Wait up to ten seconds until a heated GPU no longer slows itself down; return the result in words.

    The next reader of the GPU, such as QA, would otherwise take the heat of this game-day for bad cooling.
    """
    began = time.monotonic()
    while True:
        try:
            sample = target_gpu(parameters, gpu, host)
        except HostError as error:
            return f"it is not known if it cooled down: {error}"
        hot = (sample.temperature_c or 0) > (sample.max_operating_c or math.inf)
        slowed = (sample.clocks_event_reasons or 0) & THERMAL_SLOWDOWN
        waited = time.monotonic() - began
        if not (hot or slowed):
            return f"no longer slowed by heat after {waited:.0f} s, at {sample.temperature_c} °C"
        if waited > _COOLS_WITHIN_S:
            return f"still hot after {waited:.0f} s, at {sample.temperature_c} °C"
        time.sleep(_LOOK_EVERY_S)


def _refuse_proof_of_nothing(sample: GpuSample, ceiling_c: int) -> None:
    """Refuse a GPU that cannot be heated until it throttles, or does not show it. Raises HostError."""
    if sample.clocks_event_reasons is None:
        raise HostError(f"NVML shows no clock event reasons of GPU {sample.index}: no throttling could be seen")
    if reasons := sample.clocks_event_reasons & THERMAL_SLOWDOWN:
        raise HostError(f"GPU {sample.index} is throttled by heat already ({named(reasons)}): look at its cooling")
    limits = [limit for limit in (sample.max_operating_c, sample.slowdown_c) if limit is not None]
    if limits and ceiling_c <= min(limits):
        raise HostError(
            f"ceiling_c is {ceiling_c}, and GPU {sample.index} ({sample.name}) throttles above {min(limits):g} °C: the "
            "load would end before. Write a higher ceiling_c, at most 92, or heat_to_c in place of until_throttled"
        )


def _temperature(sample: GpuSample) -> float:
    """Return degrees Celsius. Raises HostError if NVML has none: without a temperature there is no ceiling."""
    if sample.temperature_c is None:
        raise HostError(f"NVML does not show the temperature of GPU {sample.index}: no load without it")
    return sample.temperature_c


def _state(sample: GpuSample) -> str:
    return f"{sample.temperature_c} °C, {sample.power_w} W, {sample.utilization_pct} % busy"


def _figures(report: WorkReport) -> str:
    wrong = report.wrong_results
    found = f"{wrong} ELEMENTS WRONG: silent data corruption" if wrong else "no element wrong"
    return f"{report.products} GEMM product(s) checked, {found}"
