"""`systemd-run --on-active` on the model: a command of the host's own, after a while, for any caller."""

from __future__ import annotations

import argparse
import asyncio

from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.programs.base import Options, Printed
from gameday_rehearsal.nodes.programs.systemctl import systemctl

_FAILED = 1


async def systemd_run(args: list[str], machine: Machine) -> Printed:
    parser = Options("systemd-run", _FAILED)
    parser.add_argument("--unit", required=True)
    parser.add_argument("--on-active", required=True, type=_seconds)
    parser.add_argument("--timer-property", action="append")
    parser.add_argument("--collect", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(args)
    name, command = options.unit, options.command
    if command[:1] != ["systemctl"]:
        return Printed(stderr="Failed to find executable: the virtual one runs only systemctl\n", exit_status=_FAILED)
    if name in machine.timers:
        said = f"Failed to start transient timer unit: Unit {name}.timer was already loaded or has a fragment file.\n"
        return Printed(stderr=said, exit_status=_FAILED)
    loop = asyncio.get_running_loop()

    def elapse() -> None:
        machine.timers.pop(name)
        if machine.powered:
            machine.commands.add(task := loop.create_task(systemctl(command[1:], machine)))
            task.add_done_callback(machine.commands.discard)

    machine.timers[name] = loop.call_later(options.on_active, elapse)
    return Printed(stderr=f"Running timer as unit: {name}.timer\nWill run service as unit: {name}.service\n")


def _seconds(text: str) -> float:
    """Return the seconds of `5s`, as the faults write it."""
    return float(text.removesuffix("s"))
