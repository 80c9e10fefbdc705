"""A stopped service that watches the GPUs: the work goes on unwatched."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from enum import StrEnum
from typing import ClassVar, Literal

from gameday.errors import HostError
from gameday.faults.base import HOST_ENGINE, Claim, Evidence, Fault, Layer
from gameday.faults.systemd import (
    require_running,
    start_units,
    state_of,
    stop_unit,
    units_not_running,
    units_stopped_with,
)
from gameday.host.base import Host
from gameday.host.privileges import DAEMONS, PodSecurity
from gameday.plan.fault import FaultParameters

_LOOK_EVERY_S = 5.0
"""Interval at which it looks whether configuration management started the unit again."""


class WatchingUnit(StrEnum):
    """The services that watch the GPUs."""

    HOST_ENGINE = "nvidia-dcgm"
    EXPORTER = "nvidia-dcgm-exporter"
    PERSISTENCED = "nvidia-persistenced"


class UnitStoppedParameters(FaultParameters):
    type: Literal["unit_stopped"] = "unit_stopped"
    unit: WatchingUnit
    """The systemd unit; a node that runs it as a pod is refused."""


class UnitStoppedFault(Fault[UnitStoppedParameters]):
    """Stops one of NVIDIA's host services with `systemctl stop`, and starts it again.

    A unit that does not run is refused, so the undo always starts it. A host engine that stops forgets injected values
    and ends a pause; stopping nvidia-persistenced ends the persistence mode that it had set. Units that require this
    one are stopped with it, and started again.
    """

    parameters: ClassVar[type[FaultParameters]] = UnitStoppedParameters
    layer: ClassVar[Layer] = Layer.TELEMETRY
    security: ClassVar[PodSecurity] = DAEMONS
    summary: ClassVar[str] = "Stops a host service that watches the GPUs: DCGM, its exporter or the persistence daemon"
    does_not_reach: ClassVar[str] = (
        "running work, NVML, the kernel log; services that run as pods (the GPU operator's DCGM and exporter)"
    )
    seen_by: ClassVar[tuple[str, ...]] = (
        "alerts on absent series and on `up` (exporter, host engine)",
        "NVSentinel (GpuDcgmConnectivityFailure: host engine)",
        "EKS node monitoring agent (DCGMError: host engine)",
        "gpud and dcgmi diag level 1 (persistence mode)",
    )

    def claims(self, parameters: UnitStoppedParameters) -> tuple[Claim, ...]:
        taken = {WatchingUnit.HOST_ENGINE: HOST_ENGINE, WatchingUnit.PERSISTENCED: "persistence mode"}
        return (Claim(taken.get(parameters.unit, parameters.unit)),)

    def prior_state(self, parameters: UnitStoppedParameters, gpu: int, host: Host) -> dict[str, str]:
        before = str(require_running(host, parameters.unit))
        return {"before": before, "with": " ".join(units_stopped_with(host, parameters.unit))}

    def inject(self, parameters: UnitStoppedParameters, gpu: int, host: Host) -> Evidence:
        before = self.prior_state(parameters, gpu, host)
        written_at = datetime.now(UTC)
        stop_unit(host, parameters.unit)
        after = state_of(host, parameters.unit)
        if after.runs:
            raise HostError(f"`systemctl stop {parameters.unit}` succeeded, and the unit is {after}")
        lines = (
            f"before: {parameters.unit} {before['before']}",
            f"systemctl stop {parameters.unit}" + (f", and with it {before['with']}" if before["with"] else ""),
            f"after: {after}",
        )
        return Evidence(lines=lines, written_at=written_at, undo_state=before)

    def hold(self, parameters: UnitStoppedParameters, gpu: int, host: Host, ended: threading.Event) -> None:
        while not ended.wait(_LOOK_EVERY_S):
            if state_of(host, parameters.unit).runs:
                raise HostError(f"{parameters.unit} runs again: somebody started it")

    def undo(self, parameters: UnitStoppedParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        down = units_not_running(host, *_units(parameters, undo_state))
        if not down:
            return Evidence(lines=(f"{parameters.unit} runs already",))
        start_units(host, *down)
        return Evidence(lines=(f"systemctl start {' '.join(down)}",))

    def verify_undone(
        self, parameters: UnitStoppedParameters, gpu: int, host: Host, undo_state: dict[str, str]
    ) -> bool:
        return not units_not_running(host, *_units(parameters, undo_state))


def _units(parameters: UnitStoppedParameters, undo_state: dict[str, str]) -> tuple[str, ...]:
    """Return the unit itself, and those that systemd stops with it."""
    return (parameters.unit, *undo_state.get("with", "").split())
