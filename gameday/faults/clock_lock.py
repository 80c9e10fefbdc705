"""A locked clock: one slow GPU, which delays every job that waits for all of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import ClassVar, Literal

from pydantic import Field

from gameday.errors import HostError
from gameday.faults.base import BUS, Claim, Evidence, Fault, Layer
from gameday.faults.gpu import GpuParameters, injected_gpu, nvidia_smi, target_gpu
from gameday.host.base import GpuSample, Host
from gameday.host.privileges import GPU_PROGRAMS, PodSecurity
from gameday.plan.fault import FaultParameters

_SAME_MHZ = 15.0
"""A step of the SM clock: NVIDIA's supported clocks are 15 MHz apart."""
_SETTLES_WITHIN_S = 5.0
_POLL_S = 0.1


class ClockLockParameters(GpuParameters):
    type: Literal["clock_lock"] = "clock_lock"
    sm_clock_mhz: int = Field(ge=100, le=3000)
    """The one SM clock that the GPU may run at; an H100's lowest is 210, its highest 1980."""


class ClockLockFault(Fault[ClockLockParameters]):
    """Pins one GPU's SM clock with `nvidia-smi -lgc`, and unpins it with `-rgc`.

    NVML shows the clock, but not whether it is locked. So the fault locks a single clock, which shows immediately,
    also on an idle GPU, and an earlier lock can be neither seen nor restored; `-rgc` lifts it, too.
    """

    parameters: ClassVar[type[FaultParameters]] = ClockLockParameters
    layer: ClassVar[Layer] = Layer.NVML
    security: ClassVar[PodSecurity] = GPU_PROGRAMS
    summary: ClassVar[str] = "Locks one GPU's SM clock low: a straggler without any error"
    does_not_reach: ClassVar[str] = "the memory clock, the kernel log, ECC and health counters"
    seen_by: ClassVar[tuple[str, ...]] = (
        "SM clock under load and GEMM rate in QA",
        "DCGM_FI_DEV_SM_CLOCK, if the GPUs of a node are compared",
        "straggler checks of a training job (Google's cluster-health-scanner)",
    )

    def claims(self, parameters: ClockLockParameters) -> tuple[Claim, ...]:
        return (Claim("clocks", parameters.gpu), Claim(BUS, parameters.gpu, shared=True))

    def warnings(self, parameters: ClockLockParameters) -> tuple[str, ...]:
        return (
            "a job over several GPUs runs at the pace of the one that is locked",
            "afterwards the clocks are the driver's own: a lock that the site had set is lifted too",
        )

    def prior_state(self, parameters: ClockLockParameters, gpu: int, host: Host) -> dict[str, str]:
        sample = target_gpu(parameters, gpu, host)
        if sample.sm_clock_mhz is None or sample.sm_clock_max_mhz is None:
            raise HostError(f"NVML does not show the SM clock of GPU {sample.index}: a lock could not be proved")
        if parameters.sm_clock_mhz > sample.sm_clock_max_mhz - _SAME_MHZ:
            raise HostError(
                f"GPU {sample.index} runs at {sample.sm_clock_max_mhz:g} MHz at most, so {parameters.sm_clock_mhz} MHz "
                "would lock nothing"
            )
        if abs(sample.sm_clock_mhz - parameters.sm_clock_mhz) <= _SAME_MHZ:
            raise HostError(
                f"GPU {sample.index} runs at {sample.sm_clock_mhz:g} MHz already: a lock would not "
                "show; choose another clock"
            )
        return {"uuid": sample.uuid, "sm_clock_mhz": f"{sample.sm_clock_mhz:g}"}

    def inject(self, parameters: ClockLockParameters, gpu: int, host: Host) -> Evidence:
        before = self.prior_state(parameters, gpu, host)
        sample = target_gpu(parameters, gpu, host)
        locked = parameters.sm_clock_mhz
        written_at = datetime.now(UTC)
        output = nvidia_smi(host, sample, "-lgc", f"{locked},{locked}")
        after = _settled(
            lambda: injected_gpu(parameters, gpu, host, before), lambda clock: abs(clock - locked) <= _SAME_MHZ
        )
        if after is None or abs(after - locked) > _SAME_MHZ:
            raise HostError(
                f"nvidia-smi -lgc {locked},{locked} printed {output!r}, and {_SETTLES_WITHIN_S:g} s later GPU "
                f"{sample.index} runs at {after} MHz; does something else lock or throttle it?"
            )
        lines = (
            f"before: GPU {sample.index} {sample.uuid} at {before['sm_clock_mhz']} MHz of {sample.sm_clock_max_mhz:g}",
            f"nvidia-smi -lgc {locked},{locked}: {output}",
            f"after: at {after:g} MHz",
        )
        return Evidence(lines=lines, written_at=written_at, undo_state=before)

    def undo(self, parameters: ClockLockParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        return Evidence(
            lines=(f"nvidia-smi -rgc: {nvidia_smi(host, injected_gpu(parameters, gpu, host, undo_state), '-rgc')}",),
        )

    def verify_undone(self, parameters: ClockLockParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        """Return True once the clock differs from the locked one: idle clocks fall and loaded ones rise."""
        locked = parameters.sm_clock_mhz
        now = _settled(
            lambda: injected_gpu(parameters, gpu, host, undo_state), lambda clock: abs(clock - locked) > _SAME_MHZ
        )
        return now is not None and abs(now - locked) > _SAME_MHZ


def _settled(read: Callable[[], GpuSample], reached: Callable[[float], bool]) -> float | None:
    """Return the SM clock once it is as wanted, or the last one read: the driver takes a moment for a change."""
    deadline = time.monotonic() + _SETTLES_WITHIN_S
    while True:
        clock = read().sm_clock_mhz
        if (clock is not None and reached(clock)) or time.monotonic() > deadline:
            return clock
        time.sleep(_POLL_S)
