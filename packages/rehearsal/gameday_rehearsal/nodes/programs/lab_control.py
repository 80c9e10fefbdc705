"""`gameday-lab VERB COMPONENT [SECONDS]`: a fault's way from a node of the lab to the lab's control socket.

It takes only the orders of faults: look, pause for a bounded time, resume, restart. It prints the component's process
id and its pause, as JSON.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from gameday.cluster.lab_control import Answer, Verb, ask_lab, look_at
from gameday.errors import ControlError
from gameday.host.lab_program import LAB_PROGRAM
from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.programs.base import Options, Printed

_FAILED = 1
_BAD_USAGE = 2


async def lab_control(args: list[str], machine: Machine) -> Printed:
    parser = Options(LAB_PROGRAM, _BAD_USAGE)
    parser.add_argument("verb", choices=("look", Verb.PAUSE, Verb.RESUME, Verb.RESTART))
    parser.add_argument("component")
    parser.add_argument("seconds", type=float, nargs="?")
    options = parser.parse_args(args)
    if (options.verb == Verb.PAUSE) != (options.seconds is not None):
        parser.error("a pause needs its seconds, and nothing else has any")
    if machine.lab_control is None:
        return Printed(stderr=f"{LAB_PROGRAM}: {machine.name} is not a node of a lab\n", exit_status=_FAILED)
    try:
        # In a thread: a restart takes up to two seconds, and the other nodes must go on.
        state = await asyncio.to_thread(_asked, machine.lab_control, options.verb, options.component, options.seconds)
    except ControlError as error:
        return Printed(stderr=f"{LAB_PROGRAM}: {error}\n", exit_status=_FAILED)
    return Printed(state.model_dump_json(include={"pid", "paused"}) + "\n")


def _asked(control: Path, verb: str, component: str, seconds: float | None) -> Answer:
    if verb != "look":
        ask_lab(control, Verb(verb), component, seconds)
    return look_at(control, component)
