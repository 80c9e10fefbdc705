"""`systemctl` on the model: reboot, and the units that matter to a GPU node. Exit statuses as systemctl(1) has them."""

from __future__ import annotations

import asyncio

from gameday.rehearsal.nodes.machine import UNITS, Machine
from gameday.rehearsal.nodes.programs.base import Printed

_NOT_ACTIVE = 3
_NO_SUCH_UNIT_STATUS = 4
_NOT_FOUND = 5
_RESTART_TAKES_S = 0.3
_OTHER_NAMES = {"dcgm-exporter": "nvidia-dcgm-exporter", "dcgm": "nvidia-dcgm"}


async def systemctl(args: list[str], machine: Machine) -> Printed:
    verb, *units = [arg for arg in args if not arg.startswith("-")] or [""]
    if verb == "reboot":
        machine.reboot()
        return Printed()
    if verb not in ("start", "stop", "restart", "is-active") or not units:
        return Printed(stderr=f"Unknown command verb {verb[:40]!r} or no unit named.\n", exit_status=1)
    lines, status = [], 0
    for unit in units:
        printed = await _one(verb, unit.removesuffix(".service"), machine)
        lines.append(printed)
        status = status or printed.exit_status
    return Printed("".join(one.stdout for one in lines), "".join(one.stderr for one in lines), status)


async def _one(verb: str, unit: str, machine: Machine) -> Printed:
    unit = _OTHER_NAMES.get(unit, unit)
    if verb == "is-active":
        if unit not in UNITS:
            return Printed("inactive\n", exit_status=_NO_SUCH_UNIT_STATUS)
        active = machine.is_active(unit)
        return Printed("active\n" if active else "inactive\n", exit_status=0 if active else _NOT_ACTIVE)
    if unit not in UNITS:
        return Printed(
            stderr=f"Failed to {verb} {unit[:64]}.service: Unit {unit[:64]}.service not found.\n",
            exit_status=_NOT_FOUND,
        )
    if verb in ("stop", "restart"):
        machine.set_unit(unit, active=False)
    if verb == "restart":
        await asyncio.sleep(_RESTART_TAKES_S)
    if verb in ("start", "restart"):
        machine.set_unit(unit, active=True)
    return Printed()
