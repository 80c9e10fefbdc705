"""`dcgmi` on the model: `test` (inject, introspect, pause, resume), `dmon`, `modules -l`, `diag`, and its traps.

Messages and exit statuses are dcgmi's own (DCGM 4.6: dcgmi/DcgmiTest.cpp, DeviceMonitor.cpp, Module.cpp, Command.cpp);
a status is DCGM's negative return code, cut to a byte, or 1 where the parser finds the mistake. The traps
(docs/sources.md, DCGM injection): --gpuid defaults to 1; a field's name or a hexadecimal value is read by atoi and atol
and becomes 0, which is no field, but a value; a group is refused with --inject; --introspect shows when and how often a
field was sampled, and never its value: only `dmon` shows that.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping

from gameday.faults.component_pods import Component
from gameday_rehearsal.nodes.dcgm import BY_ID, DOUBLE_FIELDS, is_blank
from gameday_rehearsal.nodes.machine import HOST_ENGINE, Machine
from gameday_rehearsal.nodes.programs.base import Options, Printed, Refused
from gameday_rehearsal.nodes.programs.dcgmi_diag import run_tests

_BAD_PARAMETER = 255  # DCGM_ST_BADPARAM -1
_BAD_USAGE = 254  # main()'s status for arguments that do not fit: -2
_PARSE_ERROR = 1  # the parser's own: no such argument, or not a number
_NOT_WATCHED = 240  # DCGM_ST_NOT_WATCHED -16
_NO_CONNECTION = 235  # DCGM_ST_CONNECTION_NOT_VALID -21
_GPU_IS_LOST = 238  # DCGM_ST_GPU_IS_LOST -18
_EMPTY_GROUP = 221  # DCGM_ST_GROUP_IS_EMPTY -35
_INTEGER = re.compile(r"\s*([+-]?\d+)")
_DOUBLE = re.compile(r"\s*([+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)")
_LAST_FIELD = 1533  # DCGM_FI_MAX_FIELDS of DCGM 4.6, less one
_MODULES = (
    *("Core", "NvSwitch", "VGPU", "Introspection", "Health", "Policy", "Config", "Diag", "Profiling", "SysMon"),
    "MnDiag",
)
_COLUMNS = (11, 20, 50)
_LOADED = frozenset(("Core", "NvSwitch", "Introspection", "Health", "Profiling"))
_ENTITY_WIDTH = 16
_VALUE_WIDTH = 28

_Subsystem = Callable[[list[str], Machine], Awaitable[Printed]]


async def dcgmi(args: list[str], machine: Machine) -> Printed:
    await machine.components.until_thawed(Component.HOST_ENGINE)  # a frozen one takes the connection, and says nothing
    subsystems: dict[str, _Subsystem] = {"test": _test, "dmon": _dmon, "modules": _modules, "diag": _diag}
    if not args:
        raise Refused(Printed(stderr="PARSE ERROR: a subsystem is required\n", exit_status=_PARSE_ERROR))
    subsystem = subsystems.get(args[0])
    if subsystem is None:
        return Printed("ERROR: Invalid subsystem.\n\n", exit_status=_BAD_PARAMETER)
    return await subsystem(args[1:], machine)


async def _test(args: list[str], machine: Machine) -> Printed:
    parser = _parser()
    verbs = parser.add_mutually_exclusive_group(required=True)
    for verb in ("inject", "introspect", "pause", "resume"):
        verbs.add_argument(f"--{verb}", action="store_true")
    parser.add_argument("--gpuid", type=int)
    parser.add_argument("-g", "--group", type=int)
    parser.add_argument("-f", "--field")
    parser.add_argument("-v", "--value")
    parser.add_argument("--offset", type=int, default=1)
    options = parser.parse_args(args)
    for name in ("group", "gpuid", "offset"):
        if (getattr(options, name) or 0) < 0:
            raise _usage(f"Positive value expected, negative value found for arg {name}")
    if options.pause or options.resume:
        return _pause_resume(options, machine)
    if options.gpuid is not None and options.group is not None:
        raise _usage("Both group and GPU ID set. Please use only one at a time")
    if options.field is None:
        raise _usage("The --field argument is required for --inject and --introspect")
    if options.inject and options.group is not None:
        raise _usage("Injection can only be specified for a single GPU")
    if options.inject and options.value is None:
        raise _usage("The -v/--value argument is required for --inject")
    if not machine.is_active(HOST_ENGINE):
        return _unreachable(options.host)
    gpu, field = 1 if options.gpuid is None else options.gpuid, _atoi(options.field)
    return _inject(options, machine, gpu, field) if options.inject else _introspect(machine, gpu, field)


def _pause_resume(options: argparse.Namespace, machine: Machine) -> Printed:
    if not machine.is_active(HOST_ENGINE):
        return _unreachable(options.host)
    if options.pause:
        machine.cache.pause(machine.index)
    else:
        machine.cache.resume(machine.index)
    return Printed(f"Successfully {'paused' if options.pause else 'resumed'} metrics monitoring\n")


def _inject(options: argparse.Namespace, machine: Machine, gpu: int, field: int) -> Printed:
    if not 0 <= gpu < len(machine.gpus) or not 0 < field <= _LAST_FIELD:
        return Printed(
            "Error: Unable to inject info. Return: Bad parameter passed to function\n", exit_status=_BAD_PARAMETER
        )
    value = _atof(options.value) if field in DOUBLE_FIELDS else _atoi(options.value)
    machine.cache.inject((machine.index, gpu), field, value, options.offset)
    return Printed("Successfully injected field info.\n")


def _introspect(machine: Machine, gpu: int, field: int) -> Printed:
    cell = (machine.index, gpu)
    if not 0 <= gpu < len(machine.gpus) or (field not in BY_ID and machine.cache.latest(cell, field) is None):
        return Printed(
            f"Error: Unable to get field info for entity ID: {gpu}. Return: Field is not being watched\n",
            exit_status=_NOT_WATCHED,
        )
    watched = machine.cache.watches(machine.index, field)
    rows = {
        "Field ID": field,
        "Flags": int(watched),
        "Last Status": 0,
        "Number of Samples": int(machine.cache.latest(cell, field) is not None),
        "Number of Watchers": int(watched),
    }
    return Printed("".join(f" {name:<23} : {value:<45} \n" for name, value in rows.items()) + "\n")


async def _dmon(args: list[str], machine: Machine) -> Printed:
    """Run dmon; short names and units are left out of the header, its rows are the real ones."""
    options = _dmon_options(args)
    if not machine.is_active(HOST_ENGINE):
        return _unreachable(options.host)
    gpus = _active_gpus(machine)
    if options.entity_id:
        gpus = [_gpu_id(gpu) for gpu in options.entity_id.split(",")]
        for gpu in gpus:
            _refuse_inactive(machine, gpu)
    fields = [_atoi(field) for field in options.field_id.split(",")]
    for field in fields:
        if not 0 < field <= _LAST_FIELD:
            said = f"Error: Got invalid field ID. '{field}'. See dcgm_fields.h for a list of valid field IDs.\n"
            return Printed(stderr=said, exit_status=_BAD_PARAMETER)
    head = f"{'#Entity':<{_ENTITY_WIDTH}}\n{'ID':<{_ENTITY_WIDTH}}\n"
    if not gpus:
        why = "The specified group is empty, and this operation is incompatible with an empty group"
        return Printed(head, f"Error getting values information. Return -35: {why}\n", _EMPTY_GROUP)
    rows: list[str] = []
    while len(rows) < options.count or not options.count:
        if rows:
            await asyncio.sleep(options.delay / 1000)
        rows.append("".join(_row(machine, gpu, fields) for gpu in gpus))
    return Printed(head + "".join(rows))


def _dmon_options(args: list[str]) -> argparse.Namespace:
    parser = _parser()
    parser.add_argument("-i", "--entity-id", default="")
    parser.add_argument("-e", "--field-id", required=True)
    parser.add_argument("-c", "--count", type=int, default=0)
    parser.add_argument("-d", "--delay", type=int, default=1000)
    options = parser.parse_args(args)
    if options.count < 0:
        raise _usage("Positive value expected, negative value found for arg count")
    if options.delay < 1:
        raise _usage("Invalid value for arg delay")
    if not options.field_id[:1].isdecimal():
        raise _usage("Invalid value for arg field-id")
    return options


def _gpu_id(text: str) -> int:
    if not text.isdecimal():
        said = f"Error: Expected numerical entityId instead of {text}\n"
        raise Refused(Printed(stderr=said, exit_status=_BAD_PARAMETER))
    return int(text)


def _active_gpus(machine: Machine) -> list[int]:
    """Return the GPUs that are neither paused nor lost, which are all that a new watcher is given."""
    paused = not machine.cache.collecting[machine.index]
    return [] if paused else [gpu.index for gpu in machine.gpus if machine.gpu_serves(gpu.index)]


def _refuse_inactive(machine: Machine, gpu: int) -> None:
    """Refuse a GPU that is not active; a lost one stays lost while the others are paused."""
    if gpu in _active_gpus(machine):
        return
    lost = 0 <= gpu < len(machine.gpus) and not machine.gpu_serves(gpu)
    why = "-18 GPU is lost" if lost else "-1 Bad parameter passed to function"
    said = f"Error: Got error {why} while adding GPU {gpu} to our entity group.\n"
    raise Refused(Printed(stderr=said, exit_status=_GPU_IS_LOST if lost else _BAD_PARAMETER))


def _row(machine: Machine, gpu: int, fields: list[int]) -> str:
    cell, shown = (machine.index, gpu), []
    for field in fields:
        machine.cache.sample(cell, field)
        value = machine.cache.latest(cell, field)
        shown.append(f"{_shown(field, value):<{_VALUE_WIDTH}}")
    return f"{f'GPU {gpu}':<{_ENTITY_WIDTH}}{''.join(shown)}\n"


def _shown(field: int, value: float | None) -> str:
    if value is None or is_blank(field, value):
        return "N/A"
    return f"{value:.3f}" if field in DOUBLE_FIELDS else str(int(value))


async def _modules(args: list[str], machine: Machine) -> Printed:
    parser = _parser()
    parser.add_argument("-l", "--list", action="store_true", required=True)
    parser.add_argument("-j", "--json", action="store_true")
    options = parser.parse_args(args)
    if not machine.is_active(HOST_ENGINE):
        said = "Error: Unable to connect to host engine.\n"
        return Printed(_no_connection(options.host), said, _NO_CONNECTION)
    running = "Loaded" if machine.cache.collecting[machine.index] else "Paused"
    states = {name: running if name in _LOADED else "Not loaded" for name in _MODULES}
    if not options.json:
        return Printed(_module_table(states))
    body = {
        name: {"children": {"Module ID": {"value": str(number)}, "Name": {"value": name}, "State": {"value": state}}}
        for number, (name, state) in enumerate(states.items())
    }
    return Printed(json.dumps({"body": body, "header": ["List Modules", "Status: Success"]}, indent=3) + "\n")


def _module_table(states: Mapping[str, str]) -> str:
    line, double = ("+" + "".join(f"{mark * width}+" for width in _COLUMNS) for mark in "-=")
    cells = [("Module ID", "Name", "State"), *((number, *of) for number, of in enumerate(states.items()))]
    rows = [
        "| " + " | ".join(f"{cell:<{width - 2}}" for cell, width in zip(row, _COLUMNS, strict=True)) + " |"
        for row in cells
    ]
    heads = [f"| {head:<{sum(_COLUMNS)}} |" for head in ("List Modules", "Status: Success")]
    return "\n".join([line, *heads, double, rows[0], line, *rows[1:], line, ""])


async def _diag(args: list[str], machine: Machine) -> Printed:
    parser = Options("dcgmi diag", _BAD_USAGE)
    parser.add_argument("--host", default="localhost")
    parser.add_argument("-r", "--run", type=int, choices=(1, 2, 3), required=True)
    parser.add_argument("-j", "--json", action="store_true", required=True)
    options = parser.parse_args(args)
    if not machine.is_active(HOST_ENGINE):
        return _unreachable(options.host)
    return await run_tests(machine, options.run)


def _parser() -> Options:
    parser = Options("PARSE ERROR", _PARSE_ERROR)
    parser.add_argument("--host", default="localhost")
    return parser


def _usage(problem: str) -> Refused:
    said = f"Error: {problem}.\nAn error occurred trying to parse the command line.\n"
    return Refused(Printed(stderr=said, exit_status=_BAD_USAGE))


def _unreachable(host: str) -> Printed:
    said = "Error: Unable to connect to host engine. Host engine connection invalid/disconnected.\n"
    return Printed(_no_connection(host) + said, exit_status=_NO_CONNECTION)


def _no_connection(host: str) -> str:
    return f"Error: unable to establish a connection to the specified host: {host}\n"


def _atoi(text: str) -> int:
    """Return C's atoi: the leading decimal number, or 0."""
    found = _INTEGER.match(text)
    return int(found[1]) if found else 0


def _atof(text: str) -> float:
    found = _DOUBLE.match(text)
    return float(found[1]) if found else 0.0
