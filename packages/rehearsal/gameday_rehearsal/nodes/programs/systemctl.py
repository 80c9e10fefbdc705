"""`systemctl` on the model: reboot, power-off, and a GPU node's units, in systemctl(1)'s words and exit statuses."""

from __future__ import annotations

import asyncio

from gameday_rehearsal.nodes.machine import UNITS, Machine
from gameday_rehearsal.nodes.programs.base import Printed

_NOT_ACTIVE = 3
_NO_SUCH_UNIT_STATUS = 4
_NOT_FOUND = 5
_RESTART_TAKES_S = 0.3
_OTHER_NAMES = {"dcgm-exporter": "nvidia-dcgm-exporter", "dcgm": "nvidia-dcgm"}
_ACTIVE = {True: "active", False: "inactive"}


async def systemctl(args: list[str], machine: Machine) -> Printed:
    verb, *units = [arg for arg in args if not arg.startswith("-")] or [""]
    asked = next((arg.partition("=")[2].split(",") for arg in args if arg.startswith("--property=")), None)
    match verb:
        case "reboot":
            machine.reboot()
            return Printed()
        case "poweroff":
            machine.power_off()
            return Printed()
        case "is-system-running":
            return Printed("stopping\n", exit_status=1) if machine.going_down else Printed("running\n")
        case "start" | "stop" | "restart" | "is-active" | "show" if units:
            printed = [await _one(verb, unit, machine) for unit in units]
            status = next((one.exit_status for one in printed if one.exit_status), 0)
            lines = [line for one in printed for line in one.stdout.splitlines(keepends=True)]
            shown = [line for line in lines if verb != "show" or asked is None or line.partition("=")[0] in asked]
            return Printed("".join(shown), "".join(one.stderr for one in printed), status)
    return Printed(stderr=f"Unknown command verb {verb[:40]!r} or no unit named.\n", exit_status=1)


async def _one(verb: str, name: str, machine: Machine) -> Printed:
    """Handle one unit: a transient timer, or a service under any of its names."""
    if name.endswith(".timer"):
        return _timer(verb, name.removesuffix(".timer"), machine)
    unit = name.removesuffix(".service")
    unit = _OTHER_NAMES.get(unit, unit)
    if unit not in UNITS:
        return _not_there(verb, f"{unit}.service")
    if verb in ("is-active", "show"):
        others = " ".join(f"{other}.service" for other in machine.required_by.get(unit, ()))
        return _printed(verb, machine.is_active(unit), others)
    if verb in ("stop", "restart"):
        machine.set_unit(unit, active=False)
    if verb == "restart":
        await asyncio.sleep(_RESTART_TAKES_S)
    if verb in ("start", "restart"):
        machine.set_unit(unit, active=True)
    return Printed()


def _timer(verb: str, name: str, machine: Machine) -> Printed:
    if name not in machine.timers:
        return _not_there(verb, f"{name}.timer")
    if verb == "stop":
        machine.timers.pop(name).cancel()
    return _printed(verb, active=True) if verb in ("is-active", "show") else Printed()


def _printed(verb: str, active: bool, required_by: str = "") -> Printed:
    if verb == "show":
        return Printed(f"LoadState=loaded\nActiveState={_ACTIVE[active]}\nRequiredBy={required_by}\n")
    return Printed(f"{_ACTIVE[active]}\n", exit_status=0 if active else _NOT_ACTIVE)


def _not_there(verb: str, unit: str) -> Printed:
    if verb == "show":  # it also prints units that do not exist, and calls that success
        return Printed("LoadState=not-found\nActiveState=inactive\n")
    if verb == "is-active":
        return Printed("inactive\n", exit_status=_NO_SUCH_UNIT_STATUS)
    why = "not loaded" if verb == "stop" else "not found"
    return Printed(stderr=f"Failed to {verb} {unit[:72]}: Unit {unit[:72]} {why}.\n", exit_status=_NOT_FOUND)
