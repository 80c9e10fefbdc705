"""A reboot of the node: `systemctl reboot`."""

from __future__ import annotations

from typing import ClassVar

from gameday.errors import HostError
from gameday.host.base import Host
from gameday.host.privileges import DAEMONS, PodSecurity
from gameday.remediations.base import Remediation

_ORDER_TIMEOUT_S = 20.0


class Reboot(Remediation):
    """Reboots the node in order: systemd ends its services first."""

    name: ClassVar[str] = "reboot"
    summary: ClassVar[str] = "Reboots the node"
    security: ClassVar[PodSecurity] = DAEMONS
    takes_node_down: ClassVar[bool] = True

    def repair(self, gpu: int | None, host: Host, lines: list[str]) -> None:
        lines.append("running: systemctl reboot")
        ordered = host.run(["systemctl", "reboot"], _ORDER_TIMEOUT_S)
        if ordered.exit_status:
            raise HostError(f"systemctl exit {ordered.exit_status}: {' '.join(ordered.stderr.split())[:500]}")
