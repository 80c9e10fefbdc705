"""`systemctl` and `systemd-run` on the node's host, as the faults on units and on the node itself use them."""

from __future__ import annotations

from dataclasses import dataclass

from gameday.errors import HostError
from gameday.host.base import Host, ProgramResult

_WITHIN_S = 120.0
"""systemd gives a unit 90 s to stop before it kills it (DefaultTimeoutStopSec)."""
_STOPPED_WITH = ("RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf")
"""Reverses of Requires=, Requisite=, BindsTo= and PartOf=, each of which takes a unit down with the one it names
(systemd.unit(5)); only WantedBy= does not."""
_NOT_FOUND = 127


@dataclass(frozen=True)
class UnitState:
    """systemd's own words: loaded, not-found, masked … and active, inactive, failed …"""

    load: str
    active: str

    @property
    def runs(self) -> bool:
        return self.active == "active"

    def __str__(self) -> str:
        return f"{self.load}, {self.active}"


def state_of(host: Host, unit: str) -> UnitState:
    """Raises HostError."""
    told = _show(host, unit, "LoadState", "ActiveState")
    if "LoadState" not in told or "ActiveState" not in told:
        raise HostError(f"`systemctl show {unit}` does not tell the unit's state, only {told}")
    return UnitState(told["LoadState"], told["ActiveState"])


def running(host: Host, unit: str) -> UnitState:
    """The state of a unit that is loaded and active. Raises HostError for any other: what is off was not stopped."""
    found = state_of(host, unit)
    if found.load != "loaded":
        raise HostError(f"{unit} is {found.load} on this node: is it there under another name, or in a pod?")
    if not found.runs:
        raise HostError(f"{unit} is {found.active} already: there is nothing to stop")
    return found


def stopped_with(host: Host, unit: str) -> tuple[str, ...]:
    """The active units that systemd stops with this one, and does not start with it again. Raises HostError."""
    found = [unit]
    for one in found:  # it grows: what those that go take along goes too
        told = _show(host, one, *_STOPPED_WITH)
        others = dict.fromkeys(other for relation in _STOPPED_WITH for other in told.get(relation, "").split())
        found += [other for other in others if other not in found and state_of(host, other).runs]
    return tuple(found[1:])


def resting(host: Host, *units: str) -> list[str]:
    """Those that do not run. Raises HostError."""
    return [unit for unit in units if not state_of(host, unit).runs]


def stop(host: Host, unit: str) -> None:
    _run(host, "systemctl", "stop", unit)


def start(host: Host, *units: str) -> None:
    _run(host, "systemctl", "start", *units)


def going_down(host: Host) -> bool:
    """Whether systemd is on its way to a reboot or a power-off. Raises HostError."""
    # Its exit status says whether all is well, which is not what is asked here.
    return host.run(["systemctl", "is-system-running"], _WITHIN_S).stdout.strip() == "stopping"


def schedule(host: Host, timer: str, in_s: float, *command: str) -> None:
    """Have the host run a command, agent or no agent, in `in_s` seconds. Raises HostError when it will not."""
    _run(
        host,
        "systemd-run",
        "--collect",
        f"--unit={timer}",
        f"--on-active={in_s:g}s",
        "--timer-property=AccuracySec=100ms",  # systemd's default is a minute
        *command,
    )
    if not scheduled(host, timer):
        raise HostError(f"systemd-run took {' '.join(command)!r}, and its {timer}.timer is not active")


def scheduled(host: Host, timer: str) -> bool:
    return state_of(host, f"{timer}.timer").runs


def cancel(host: Host, timer: str) -> bool:
    """Whether there was anything to cancel. Raises HostError."""
    if not scheduled(host, timer):
        return False
    stop(host, f"{timer}.timer")
    return True


def _show(host: Host, unit: str, *properties: str) -> dict[str, str]:
    done = _run(host, "systemctl", "show", unit, f"--property={','.join(properties)}")
    return dict(line.partition("=")[::2] for line in done.stdout.splitlines())


def _run(host: Host, *argv: str) -> ProgramResult:
    """Raises HostError, in the program's own words, when it says no."""
    done = host.run(argv, _WITHIN_S)
    if done.exit_status == _NOT_FOUND:
        raise HostError(f"no {argv[0]} on this node ({done.output_line or 'not found'}): its units are not systemd's")
    if done.exit_status:
        raise HostError(f"`{' '.join(argv)}`: exit {done.exit_status}: {done.output_line or 'no word'}")
    return done
