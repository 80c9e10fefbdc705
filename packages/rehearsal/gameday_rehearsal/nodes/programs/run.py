"""Run one program on a virtual machine, found by name and bounded in time; report unknown ones like a shell."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import PurePosixPath

from gameday.errors import HostBusyError, MachineDownError
from gameday.host.base import ProgramResult
from gameday.host.lab_program import LAB_PROGRAM
from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.programs.base import Printed, Refused
from gameday_rehearsal.nodes.programs.coreutils import rm, test
from gameday_rehearsal.nodes.programs.crictl import crictl
from gameday_rehearsal.nodes.programs.dcgmi import dcgmi
from gameday_rehearsal.nodes.programs.ip import ip, ss
from gameday_rehearsal.nodes.programs.lab_control import lab_control
from gameday_rehearsal.nodes.programs.nccl_tests import env
from gameday_rehearsal.nodes.programs.nvidia_smi import nvidia_smi
from gameday_rehearsal.nodes.programs.ping import ping
from gameday_rehearsal.nodes.programs.systemctl import systemctl
from gameday_rehearsal.nodes.programs.systemd_run import systemd_run
from gameday_rehearsal.nodes.programs.tc import tc

Program = Callable[[list[str], Machine], Awaitable[Printed]]
PROGRAMS: Mapping[str, Program] = {
    "nvidia-smi": nvidia_smi,
    "crictl": crictl,
    "dcgmi": dcgmi,
    "systemctl": systemctl,
    "systemd-run": systemd_run,
    "env": env,
    "ip": ip,
    LAB_PROGRAM: lab_control,
    "ping": ping,
    "rm": rm,
    "ss": ss,
    "tc": tc,
    "test": test,
}
_NOT_FOUND = 127


async def run_program(machine: Machine, argv: list[str], timeout_s: float) -> ProgramResult:
    """Run the program. Raises HostBusyError if it takes too long, MachineDownError if the machine goes down."""
    command = _without_nsenter(argv)
    name = PurePosixPath(command[0]).name if command else ""
    boot_id = machine.boot_id
    try:
        async with asyncio.timeout(timeout_s):
            printed = await PROGRAMS[name](command[1:], machine) if name in PROGRAMS else _unknown(name)
    except Refused as refused:
        printed = refused.printed
    except TimeoutError:
        raise HostBusyError(f"{' '.join(argv)[:200]!r} did not end within {timeout_s:g} s and was killed") from None
    if not machine.powered or machine.boot_id != boot_id:
        raise MachineDownError(f"{machine.name} went down while {name} ran")
    return ProgramResult(
        argv=tuple(argv), exit_status=printed.exit_status, stdout=printed.stdout, stderr=printed.stderr
    )


def _unknown(name: str) -> Printed:
    return Printed(stderr=f"{name[:64]}: command not found\n", exit_status=_NOT_FOUND)


def _without_nsenter(argv: list[str]) -> list[str]:
    """Return the program behind `nsenter -t 1 -m … [--]`: the virtual host is already in the host's namespaces."""
    if not argv or PurePosixPath(argv[0]).name != "nsenter":
        return argv
    rest = argv[1:]
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "--":
            break
        if option in ("-t", "--target") and rest:
            rest.pop(0)
    return rest
