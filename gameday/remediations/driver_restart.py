"""A restart of the driver: `systemctl restart nvidia-persistenced`."""

from __future__ import annotations

from typing import ClassVar

from gameday.errors import HostError
from gameday.faults.gpu import PERSISTENCE_DAEMON
from gameday.faults.systemd import state_of
from gameday.host.base import Host
from gameday.host.privileges import GPU_PROGRAMS, PodSecurity
from gameday.remediations.base import Remediation

_RESTART_TIMEOUT_S = 120.0
"""systemd gives a unit 90 s to stop before it kills it (DefaultTimeoutStopSec)."""
_QUERY_TIMEOUT_S = 20.0


class DriverRestart(Remediation):
    """Restarts the persistence daemon, so that the driver initialises every GPU again.

    When the daemon and all clients are gone, the driver closes every GPU, and it initialises them when the daemon comes
    back. Reloading the module would need every client of the driver stopped, which takes a reboot.
    """

    name: ClassVar[str] = "driver-restart"
    summary: ClassVar[str] = "Restarts nvidia-persistenced, so that the driver initialises every GPU again"
    security: ClassVar[PodSecurity] = GPU_PROGRAMS

    def repair(self, gpu: int | None, host: Host, lines: list[str]) -> None:
        found = state_of(host, PERSISTENCE_DAEMON)
        if found.load != "loaded":
            lines.append(f"{PERSISTENCE_DAEMON}: {found}")
            raise HostError(
                f"{PERSISTENCE_DAEMON} is {found.load} on this host, for example because the GPU operator "
                "runs the driver in a container: the driver cannot be restarted there; use remediation: reboot"
            )
        restarted = host.run(["systemctl", "restart", PERSISTENCE_DAEMON], _RESTART_TIMEOUT_S)
        output = " ".join(restarted.stderr.split())[:500]
        lines.append(f"systemctl restart {PERSISTENCE_DAEMON}: exit {restarted.exit_status} {output}".rstrip())
        active = host.run(["systemctl", "is-active", PERSISTENCE_DAEMON], _QUERY_TIMEOUT_S)
        state = f"systemctl is-active {PERSISTENCE_DAEMON}: {active.stdout.strip()[:60] or 'no answer'}"
        lines.append(state)
        gpus = host.gpus()
        lost = [sample.index for sample in gpus if sample.lost]
        counted = f"after: {len(gpus)} GPU(s), lost: {lost or 'none'}"
        lines.append(counted)
        success = restarted.exit_status == 0 and active.exit_status == 0 and bool(gpus) and not lost
        record = f"<6>gameday-agent: driver restart executed: {PERSISTENCE_DAEMON}, success: {str(success).lower()}"
        host.write_kernel_log(record)
        lines.append(f"written: {record}")
        if not success:
            raise HostError(output or (state if active.exit_status else counted))
