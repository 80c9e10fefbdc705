"""The node reboots, as after a kernel panic or an impatient operator, with work on it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar, Literal

from gameday.errors import HostError
from gameday.faults.base import NODE, Claim, Evidence, Fault, Layer
from gameday.faults.systemd import cancel, is_scheduled, is_shutting_down, schedule
from gameday.host.base import Host
from gameday.host.privileges import DAEMONS, PodSecurity
from gameday.plan.fault import FaultParameters

DELAY_S = 5.0
"""Time from the order to the reboot: the injector's report has to leave the node first."""
_TIMER = "gameday-reboot"


class NodeRebootParameters(FaultParameters):
    dangerous: ClassVar[str] = (
        "all work on the node is lost, and a node that does not come up again has to be started by hand"
    )
    type: Literal["node_reboot"] = "node_reboot"


class NodeRebootFault(Fault[NodeRebootParameters]):
    """Makes the host reboot in five seconds, in order: systemd ends its services first.

    The fault is out when the node runs with a new boot id, which only an agent that starts after the boot can see;
    until the reboot begins, the timer can be cancelled.
    """

    parameters: ClassVar[type[FaultParameters]] = NodeRebootParameters
    layer: ClassVar[Layer] = Layer.NODE
    security: ClassVar[PodSecurity] = DAEMONS
    summary: ClassVar[str] = "Reboots the node without draining it"
    does_not_reach: ClassVar[str] = "crash paths, as of a power loss or a panic; other nodes"
    seen_by: ClassVar[tuple[str, ...]] = (
        "node lifecycle controller (Ready), kubelet's Rebooted event",
        "alerts on node conditions and on absent series, if the boot takes longer than they wait",
        "gameday node-health controller (a new boot: reboot-remedied faults end)",
    )

    def claims(self, parameters: NodeRebootParameters) -> tuple[Claim, ...]:
        return (Claim(NODE),)

    def prior_state(self, parameters: NodeRebootParameters, gpu: int, host: Host) -> dict[str, str]:
        if is_shutting_down(host):
            raise HostError("the node is shutting down already")
        return {"boot_id": host.boot_id()}

    def inject(self, parameters: NodeRebootParameters, gpu: int, host: Host) -> Evidence:
        before = self.prior_state(parameters, gpu, host)
        written_at = datetime.now(UTC)
        schedule(host, _TIMER, DELAY_S, "systemctl", "reboot")
        lines = (f"before: boot id {before['boot_id']}", f"host timer: systemctl reboot in {DELAY_S:g} s")
        return Evidence(lines=lines, written_at=written_at, undo_state=before)

    def undo(self, parameters: NodeRebootParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        if cancel(host, _TIMER):
            return Evidence(lines=("the reboot was cancelled before it began",))
        return Evidence(lines=(f"nothing to undo: boot id {host.boot_id()}, no reboot of ours is due",))

    def verify_undone(self, parameters: NodeRebootParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        if undo_state.get("boot_id", host.boot_id()) != host.boot_id():
            return True
        return not is_scheduled(host, _TIMER) and not is_shutting_down(host)
