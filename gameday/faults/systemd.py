"""Calls of `systemctl` and `systemd-run` on the node's host, for the faults on units and on the node itself."""

from __future__ import annotations

from dataclasses import dataclass

from gameday.errors import HostError
from gameday.host.base import Host, ProgramResult

_TIMEOUT_S = 120.0
"""systemd gives a unit 90 s to stop before it kills it (DefaultTimeoutStopSec)."""
_STOPPING_RELATIONS = ("RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf")
"""The reverse of Requires=, Requisite=, BindsTo= and PartOf=: each stops a unit together with the one it names
(systemd.unit(5)); only WantedBy= does not."""
_NOT_FOUND = 127


@dataclass(frozen=True)
class UnitState:
    """A unit's state in systemd's words, e.g. loaded, not-found, masked, and active, inactive, failed."""

    load: str
    active: str

    @property
    def runs(self) -> bool:
        """True if the unit is active."""
        return self.active == "active"

    def __str__(self) -> str:
        return f"{self.load}, {self.active}"


def state_of(host: Host, unit: str) -> UnitState:
    """Return a unit's state, even if the unit does not exist. Raises HostError."""
    properties = _show(host, unit, "LoadState", "ActiveState")
    if "LoadState" not in properties or "ActiveState" not in properties:
        raise HostError(f"`systemctl show {unit}` does not show the unit's state, only {properties}")
    return UnitState(properties["LoadState"], properties["ActiveState"])


def require_running(host: Host, unit: str) -> UnitState:
    """Return the state of a unit that is loaded and active. Raises HostError for any other."""
    found = state_of(host, unit)
    if found.load != "loaded":
        raise HostError(f"{unit} is {found.load} on this node: is it there under another name, or in a pod?")
    if not found.runs:
        raise HostError(f"{unit} is {found.active} already: there is nothing to stop")
    return found


def units_stopped_with(host: Host, unit: str) -> tuple[str, ...]:
    """Return the active units that systemd stops with this one, but does not start with it. Raises HostError."""
    found = [unit]
    for one in found:  # the list grows during the loop, by the units that are stopped with those found
        properties = _show(host, one, *_STOPPING_RELATIONS)
        others = dict.fromkeys(
            other for relation in _STOPPING_RELATIONS for other in properties.get(relation, "").split()
        )
        found += [other for other in others if other not in found and state_of(host, other).runs]
    return tuple(found[1:])


def units_not_running(host: Host, *units: str) -> list[str]:
    """Return the units that are not active. Raises HostError."""
    return [unit for unit in units if not state_of(host, unit).runs]


def stop_unit(host: Host, unit: str) -> None:
    """Stop a unit and wait until it has stopped. Raises HostError."""
    _run(host, "systemctl", "stop", unit)


def start_units(host: Host, *units: str) -> None:
    """Start units and wait until they run. Raises HostError."""
    _run(host, "systemctl", "start", *units)


def is_shutting_down(host: Host) -> bool:
    """Return True while systemd is on its way to a reboot or a power-off. Raises HostError."""
    # The exit status is about failed units, which do not matter here.
    return host.run(["systemctl", "is-system-running"], _TIMEOUT_S).stdout.strip() == "stopping"


def schedule(host: Host, timer: str, delay_s: float, *command: str) -> None:
    """Make the host run a command in `delay_s` seconds, even if no agent lives then. Raises HostError."""
    _run(
        host,
        "systemd-run",
        "--collect",
        f"--unit={timer}",
        f"--on-active={delay_s:g}s",
        "--timer-property=AccuracySec=100ms",  # systemd's default is a minute
        *command,
    )
    if not is_scheduled(host, timer):
        raise HostError(f"systemd-run accepted {' '.join(command)!r}, and its {timer}.timer is not active")


def is_scheduled(host: Host, timer: str) -> bool:
    """Return True while a timer of `schedule` has not elapsed. Raises HostError."""
    return state_of(host, f"{timer}.timer").runs


def cancel(host: Host, timer: str) -> bool:
    """Cancel a timer of `schedule`; return False if there was none. Raises HostError."""
    if not is_scheduled(host, timer):
        return False
    stop_unit(host, f"{timer}.timer")
    return True


def _show(host: Host, unit: str, *properties: str) -> dict[str, str]:
    done = _run(host, "systemctl", "show", unit, f"--property={','.join(properties)}")
    return dict(line.partition("=")[::2] for line in done.stdout.splitlines())


def _run(host: Host, *argv: str) -> ProgramResult:
    """Run a program. Raises HostError with its output if it fails."""
    done = host.run(argv, _TIMEOUT_S)
    if done.exit_status == _NOT_FOUND:
        raise HostError(f"no {argv[0]} on this node ({done.output_line or 'not found'}): its units are not systemd's")
    if done.exit_status:
        raise HostError(f"`{' '.join(argv)}`: exit {done.exit_status}: {done.output_line or 'no output'}")
    return done
