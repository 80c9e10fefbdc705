"""`test -e` and `rm -f` on the model, for the files of /etc that faults may write."""

from __future__ import annotations

from gameday_rehearsal.nodes.files import WRITABLE_ETC
from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.programs.base import Printed


async def test(args: list[str], machine: Machine) -> Printed:
    match args:
        case ["-e", path]:
            return Printed(exit_status=0 if path in machine.extra_files else 1)
    return Printed(stderr="test: the virtual one knows only -e PATH\n", exit_status=2)


async def rm(args: list[str], machine: Machine) -> Printed:
    match args:
        case ["-f", "--", path] if path in WRITABLE_ETC:
            machine.extra_files.pop(path, None)
            return Printed()
    return Printed(stderr=f"rm: cannot remove {' '.join(args)[:80]!r}: Operation not permitted\n", exit_status=1)
