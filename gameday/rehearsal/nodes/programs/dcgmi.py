"""`dcgmi test` on the model: inject, introspect, pause, resume, with the real tool's traps.

The traps (research/gpu-health.md 2.1): --gpuid defaults to 1; a field's name
or a hexadecimal number is read by atoi/atol and becomes 0, with success
printed; a group is refused with --inject; a negative offset is refused.
"""

from __future__ import annotations

import argparse
import re

from gameday.rehearsal.nodes.machine import HOST_ENGINE, Machine
from gameday.rehearsal.nodes.programs.base import Options, Printed, Refused

_FAILED = 1
_BAD_USAGE = 2
_INTEGER = re.compile(r"\s*([+-]?\d+)")
_DOUBLE = re.compile(r"\s*([+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)")
_DOUBLE_FIELDS = frozenset((155, 160, 1001, 1004, 1005, 1218))  # DCGM_FT_DOUBLE in dcgm_fields.cpp; the rest is int64
_LAST_FIELD = 1600


async def dcgmi(args: list[str], machine: Machine) -> Printed:
    if args[:1] != ["test"]:
        raise Refused(Printed(stderr="dcgmi: the virtual one knows only `dcgmi test`\n", exit_status=_BAD_USAGE))
    options = _parser().parse_args(args[1:])
    if not machine.is_active(HOST_ENGINE):
        return Printed(
            f"Error: unable to establish a connection to the specified host: {options.host}\n"
            "Error: Unable to connect to host engine. Host engine connection invalid/disconnected.\n",
            exit_status=_FAILED,
        )
    if options.pause:
        machine.cache.collecting[machine.index] = False
        return Printed("Successfully paused metrics collection.\n")
    if options.resume:
        machine.cache.resume(machine.index)
        return Printed("Successfully resumed metrics collection.\n")
    if options.group is not None:
        raise Refused(
            Printed(stderr="dcgmi test: --group cannot be used here; name one --gpuid\n", exit_status=_BAD_USAGE)
        )
    if options.field is None:
        raise Refused(Printed(stderr="dcgmi test: --field is required\n", exit_status=_BAD_USAGE))
    return _inject(options, machine) if options.inject else _introspect(options, machine)


def _parser() -> argparse.ArgumentParser:
    parser = Options("dcgmi test", _BAD_USAGE)
    verbs = parser.add_mutually_exclusive_group(required=True)
    for verb in ("inject", "introspect", "pause", "resume"):
        verbs.add_argument(f"--{verb}", action="store_true")
    parser.add_argument("--host", default="localhost")
    parser.add_argument("--gpuid", default="1")
    parser.add_argument("-g", "--group")
    parser.add_argument("-f", "--field")
    parser.add_argument("-v", "--value")
    parser.add_argument("--offset", default="1")
    return parser


def _inject(options: argparse.Namespace, machine: Machine) -> Printed:
    offset = _atoi(options.offset)
    if options.value is None or offset < 0:
        problem = "--value is required" if options.value is None else "--offset must not be negative"
        raise Refused(Printed(stderr=f"dcgmi test: {problem}\n", exit_status=_BAD_USAGE))
    gpu, field = _atoi(options.gpuid), _atoi(options.field)
    if gpu not in machine.known_gpus() or not 0 <= field < _LAST_FIELD:
        return Printed(
            "Error: Unable to inject field info. Return: Bad parameter passed to function\n", exit_status=_FAILED
        )
    value = _atof(options.value) if field in _DOUBLE_FIELDS else _atoi(options.value)
    machine.cache.inject((machine.index, gpu), field, value, offset)
    return Printed("Successfully injected field info.\n")


def _introspect(options: argparse.Namespace, machine: Machine) -> Printed:
    gpu, field = _atoi(options.gpuid), _atoi(options.field)
    if gpu not in machine.known_gpus():
        return Printed("Error: Unable to introspect. Return: Bad parameter passed to function\n", exit_status=_FAILED)
    machine.fleet.advance()
    value = machine.cache.latest((machine.index, gpu), field)
    shown = "N/A" if value is None else f"{value:g}" if field in _DOUBLE_FIELDS else str(int(value))
    return Printed(f"GPU ID: {gpu}\nField ID: {field}\nValue: {shown}\n")


def _atoi(text: str) -> int:
    """C's: the leading decimal number, or 0."""
    found = _INTEGER.match(text)
    return int(found[1]) if found else 0


def _atof(text: str) -> float:
    found = _DOUBLE.match(text)
    return float(found[1]) if found else 0.0
