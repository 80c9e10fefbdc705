"""A service that the node needs is stopped: kubelet, containerd or the fabric manager."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from enum import StrEnum
from typing import ClassVar, Literal

from gameday.errors import HostError
from gameday.faults.base import NODE, Claim, Evidence, Fault, Layer
from gameday.faults.systemd import (
    cancel,
    is_scheduled,
    require_running,
    schedule,
    start_units,
    state_of,
    units_not_running,
    units_stopped_with,
)
from gameday.host.base import Host
from gameday.host.privileges import DAEMONS, PodSecurity
from gameday.plan.fault import FaultParameters

DELAY_S = 5.0
"""Time from the order to the stop. Without a kubelet nobody would learn that the injector is ready."""
_LOOK_EVERY_S = 1.0
_STOP_TIMEOUT_S = 100.0
"""A unit has 90 s to stop (DefaultTimeoutStopSec)."""


class NeededUnit(StrEnum):
    """The services that a fault can stop for a limited time."""

    KUBELET = "kubelet"
    CONTAINERD = "containerd"
    FABRIC_MANAGER = "nvidia-fabricmanager"


class CriticalUnitStoppedParameters(FaultParameters):
    dangerous: ClassVar[str] = (
        "pods of the node are evicted once it counts as unreachable, nothing on it can be ended or started meanwhile, "
        "and a stopped fabric manager aborts CUDA jobs on NVSwitch systems"
    )
    type: Literal["critical_unit_stopped"] = "critical_unit_stopped"
    unit: NeededUnit
    """The systemd unit; a node that has it under another name (k3s, rke2, crio) is refused."""


class CriticalUnitStoppedFault(Fault[CriticalUnitStoppedParameters]):
    """Has the host stop a service in five seconds, and start it again when the hold is over.

    Both are timers of the host's systemd; the start is ordered first, so it comes even if no agent is alive. It also
    starts the units that systemd stops with the service, like a kubelet that requires containerd.

    Without a kubelet only the agent's own clock and the host's timer end the fault, so choose a short `hold`.
    """

    parameters: ClassVar[type[FaultParameters]] = CriticalUnitStoppedParameters
    layer: ClassVar[Layer] = Layer.NODE
    security: ClassVar[PodSecurity] = DAEMONS
    summary: ClassVar[str] = "Stops a service that the node needs: kubelet, containerd or the fabric manager"
    does_not_reach: ClassVar[str] = "containers that already run (kubelet, containerd); GPUs, NVML and DCGM"
    seen_by: ClassVar[tuple[str, ...]] = (
        "node lifecycle controller (Ready=Unknown, 40 s after a kubelet's last heartbeat)",
        "alerts on kube-state-metrics' node conditions (kubelet, containerd)",
        "gpud, EKS node monitoring agent, Azure's cyclecloud-healthagent (fabric manager)",
    )

    def claims(self, parameters: CriticalUnitStoppedParameters) -> tuple[Claim, ...]:
        # A fabric manager can be stopped together with others; without a kubelet or its runtime no agent can be ended.
        fabric = parameters.unit is NeededUnit.FABRIC_MANAGER
        return (Claim(parameters.unit), Claim(NODE, shared=fabric))

    def warnings(self, parameters: CriticalUnitStoppedParameters) -> tuple[str, ...]:
        if parameters.unit is NeededUnit.FABRIC_MANAGER:
            return ("every CUDA job of the node ends, and new ones fail with error 802 until it is back",)
        return ("the injector cannot be called off early: the fault stays in for the whole hold",)

    def prior_state(self, parameters: CriticalUnitStoppedParameters, gpu: int, host: Host) -> dict[str, str]:
        before = str(require_running(host, parameters.unit))
        return {"before": before, "with": " ".join(units_stopped_with(host, parameters.unit))}

    def inject(self, parameters: CriticalUnitStoppedParameters, gpu: int, host: Host) -> Evidence:
        before = self.prior_state(parameters, gpu, host)
        unit, back_after_s = parameters.unit, DELAY_S + parameters.hold.total_seconds()
        units = " ".join(_units(parameters, before))
        written_at = datetime.now(UTC)
        schedule(host, _start_timer(unit), back_after_s, "systemctl", "start", *units.split())
        schedule(host, _stop_timer(unit), DELAY_S, "systemctl", "stop", unit)
        lines = (
            f"before: {unit} {before['before']}",
            f"host timer: systemctl stop {unit} in {DELAY_S:g} s",
            f"host timer: systemctl start {units} in {back_after_s:g} s",
        )
        return Evidence(lines=lines, written_at=written_at, undo_state=before)

    def hold(
        self, parameters: CriticalUnitStoppedParameters, gpu: int, host: Host, ended: threading.Event
    ) -> tuple[str, ...] | None:
        left = DELAY_S + _STOP_TIMEOUT_S
        while state_of(host, parameters.unit).runs:
            if left <= 0:
                raise HostError(f"{parameters.unit} still runs {_STOP_TIMEOUT_S:g} s after the host was to stop it")
            if ended.wait(_LOOK_EVERY_S):
                return (f"ended before {parameters.unit} stopped",)
            left -= _LOOK_EVERY_S
        ended.wait()
        return (f"{parameters.unit} was {state_of(host, parameters.unit)} at the end of the hold",)

    def undo(
        self, parameters: CriticalUnitStoppedParameters, gpu: int, host: Host, undo_state: dict[str, str]
    ) -> Evidence:
        unit = parameters.unit
        lines = [f"{timer}.timer cancelled" for timer in _timers(unit) if cancel(host, timer)]
        if down := units_not_running(host, *_units(parameters, undo_state)):
            start_units(host, *down)
            lines.append(f"systemctl start {' '.join(down)}")
        return Evidence(lines=tuple(lines) or (f"{unit} runs, and no timer of ours is left",))

    def verify_undone(
        self, parameters: CriticalUnitStoppedParameters, gpu: int, host: Host, undo_state: dict[str, str]
    ) -> bool:
        timers = any(is_scheduled(host, timer) for timer in _timers(parameters.unit))
        return not timers and not units_not_running(host, *_units(parameters, undo_state))


def _units(parameters: CriticalUnitStoppedParameters, undo_state: dict[str, str]) -> tuple[str, ...]:
    """Return the unit itself, and those that systemd stops with it."""
    return (parameters.unit, *undo_state.get("with", "").split())


def _stop_timer(unit: NeededUnit) -> str:
    return f"gameday-stop-{unit}"


def _start_timer(unit: NeededUnit) -> str:
    return f"gameday-start-{unit}"


def _timers(unit: NeededUnit) -> tuple[str, str]:
    """Return both timers, the stop's first: if they are cancelled in this order, a stop never loses its start."""
    return _stop_timer(unit), _start_timer(unit)
