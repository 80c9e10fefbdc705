"""The node is powered off, and its clock wakes it up again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import ClassVar, Literal

from pydantic import Field

from gameday.documents.fields import Duration
from gameday.errors import HostError
from gameday.faults.base import NODE, Claim, Evidence, Fault, Layer
from gameday.faults.systemd import cancel, is_scheduled, is_shutting_down, schedule
from gameday.host.base import Host
from gameday.host.privileges import HOST_SYSFS, PodSecurity
from gameday.plan.fault import FaultParameters

DELAY_S = 5.0
"""Time from the order to the power-off: the injector's report has to leave the node first."""
_TIMER = "gameday-poweroff"
_ALARM = "/sys/class/rtc/rtc0/wakealarm"
"""It reads as epoch seconds or empty, takes `+seconds`, and `0` clears it (kernel ABI, testing/sysfs-class-rtc)."""


class NodeShutdownParameters(FaultParameters):
    dangerous: ClassVar[str] = (
        "all work on the node is lost, its pods move away, and a node that ignores the alarm has to be started by hand"
    )
    type: Literal["node_shutdown"] = "node_shutdown"
    off_for: Duration = Field(default=timedelta(minutes=5), ge=timedelta(seconds=30), le=timedelta(hours=12))
    """Time that the node stays off; then its real-time clock wakes it, and the boot follows."""


class NodeShutdownFault(Fault[NodeShutdownParameters]):
    """Sets the wake-up alarm of the node's real-time clock, then makes the host power itself off.

    A node without such an alarm (most cloud instances) is refused. The firmware's settings decide whether the alarm
    works while the node is off: try it by hand once.
    """

    parameters: ClassVar[type[FaultParameters]] = NodeShutdownParameters
    layer: ClassVar[Layer] = Layer.NODE
    security: ClassVar[PodSecurity] = HOST_SYSFS
    summary: ClassVar[str] = "Powers the node off; its real-time clock wakes it after a while"
    does_not_reach: ClassVar[str] = "crash paths; other nodes"
    seen_by: ClassVar[tuple[str, ...]] = (
        "node lifecycle controller (Ready=Unknown, then eviction)",
        "alerts on node conditions and on absent series",
        "the cloud's or the rack's own power monitoring",
    )

    def claims(self, parameters: NodeShutdownParameters) -> tuple[Claim, ...]:
        return (Claim(NODE),)

    def prior_state(self, parameters: NodeShutdownParameters, gpu: int, host: Host) -> dict[str, str]:
        if is_shutting_down(host):
            raise HostError("the node is shutting down already")
        try:
            alarm = host.read_file(_ALARM).strip()
        except HostError as error:
            raise HostError(f"nothing would switch this node on again: no wake-up alarm ({error})") from None
        if alarm:
            raise HostError(
                f"{_ALARM} is set to {alarm} already, and not by this run: somebody else wants to wake the node"
            )
        return {"boot_id": host.boot_id()}

    def inject(self, parameters: NodeShutdownParameters, gpu: int, host: Host) -> Evidence:
        before = self.prior_state(parameters, gpu, host)
        wake_in_s = round(DELAY_S + parameters.off_for.total_seconds())
        written_at = datetime.now(UTC)
        host.write_file(_ALARM, f"+{wake_in_s}")
        alarm = host.read_file(_ALARM).strip()
        if not alarm:
            raise HostError(f"{_ALARM} accepted +{wake_in_s} and is empty on reading back")
        schedule(host, _TIMER, DELAY_S, "systemctl", "poweroff")
        lines = (
            f"before: boot id {before['boot_id']}, no wake-up alarm",
            f"wake-up alarm in {wake_in_s} s: reads back as {alarm}",
            f"host timer: systemctl poweroff in {DELAY_S:g} s",
        )
        return Evidence(lines=lines, written_at=written_at, undo_state=before)

    def undo(self, parameters: NodeShutdownParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        if is_shutting_down(host):
            # Without the alarm it would stay off.
            return Evidence(lines=("the node is powering off: its alarm is what brings it back",))
        cancelled = cancel(host, _TIMER)
        if host.read_file(_ALARM).strip():
            host.write_file(_ALARM, "0")
        found = "the power-off was cancelled before it began" if cancelled else "no power-off of ours is due"
        return Evidence(lines=(f"{found}; boot id {host.boot_id()}; no wake-up alarm left",))

    def verify_undone(
        self, parameters: NodeShutdownParameters, gpu: int, host: Host, undo_state: dict[str, str]
    ) -> bool:
        if is_shutting_down(host) or is_scheduled(host, _TIMER):
            return False
        return not host.read_file(_ALARM).strip()
