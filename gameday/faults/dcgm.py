"""`dcgmi` as the faults on DCGM use it: its words and traps, each answer read back and never believed.

What it says and returns is taken from DCGM's source (3.2 to 4.6). Three traps
decide how it is called: --gpuid defaults to 1 and is therefore always given;
numbers are read by atol, so they are written in decimal; `test --introspect`
tells how often a field was sampled and not what it holds, so values are read
with `dmon`. A `dmon` is a watcher too: it makes the host engine take a real
sample, unless an injected one is the newer.
"""

from __future__ import annotations

import json
import re

from gameday.host.base import Host, HostError, ProgramResult

BLANK = "9223372036854775792"
"""DCGM_INT64_BLANK (dcgm_structs.h): injected, it makes a whole-number field read as having no value."""
BLANK_DOUBLE = "140737488355328.0"
"""DCGM_FP64_BLANK, for fields of floating point."""
DECIMALS = 3
"""What `dmon` prints of a floating-point field."""
_WITHIN_S = 15.0
"""One call: it connects to its host engine, which answers at once or is down. dmon waits for one real sample."""
_NOT_FOUND = 127
_INJECTED = "Successfully injected field info."
_ROW = re.compile(r"^GPU +(?P<gpu>\d+) +(?P<value>\S+)", re.MULTILINE)
_SAID_CHARACTERS = 300


def inject(host: Host, gpu: int, field: int, value: str, offset_s: int) -> None:
    """Put a sample into the cache, stamped `offset_s` after the running second's begin. Raises HostError."""
    arguments = ("test", "--inject", "--gpuid", str(gpu), "-f", str(field), "-v", value, "--offset", str(offset_s))
    done = _dcgmi(host, *arguments)
    if done.exit_status or _INJECTED not in done.stdout:
        raise _refused(done)


def read(host: Host, gpu: int, field: int) -> str | None:
    """The newest value of a field, as printed; None where there is none. Raises HostError."""
    done = _dcgmi(host, "dmon", "-i", str(gpu), "-e", str(field), "-c", "1")
    if done.exit_status:
        raise _refused(done)
    for row in _ROW.finditer(done.stdout):
        if int(row["gpu"]) == gpu:
            return None if row["value"] == "N/A" else row["value"]
    raise HostError(f"`{_line(done)}` shows no row for GPU {gpu}: {_said(done)}")


def collection_paused(host: Host) -> bool:
    """Whether `test --pause` is in force, by the state of DCGM's core module. Raises HostError."""
    done = _dcgmi(host, "modules", "-l", "-j")
    if done.exit_status:
        raise _refused(done)
    try:
        state = json.loads(done.stdout)["body"]["Core"]["children"]["State"]["value"]
    except (ValueError, KeyError, TypeError):
        raise HostError(f"`{_line(done)}` does not tell the state of the Core module: {_said(done)}") from None
    return str(state) == "Paused"


def pause(host: Host) -> str:
    """Stop all sampling; what dcgmi said. Raises HostError."""
    return _switch(host, "--pause")


def resume(host: Host) -> str:
    return _switch(host, "--resume")


def _switch(host: Host, option: str) -> str:
    done = _dcgmi(host, "test", option)
    if done.exit_status:
        raise _refused(done)
    return _said(done)


def _dcgmi(host: Host, *arguments: str) -> ProgramResult:
    done = host.run(["dcgmi", *arguments], _WITHIN_S)
    if done.exit_status == _NOT_FOUND:
        raise HostError(
            f"no dcgmi on this node ({_said(done) or 'not found'}): install DCGM's package (datacenter-gpu-manager) "
            "on the host; a host engine in a pod cannot be reached from there"
        )
    return done


def _refused(done: ProgramResult) -> HostError:
    said = _said(done)
    if "connect to host engine" in said or "establish a connection" in said:
        return HostError(f"dcgmi cannot reach the node's host engine: is nvidia-dcgm running? {said}")
    return HostError(f"`{_line(done)}`: exit {done.exit_status}: {said or 'no word'}")


def _line(done: ProgramResult) -> str:
    return " ".join(done.argv)


def _said(done: ProgramResult) -> str:
    return " ".join(f"{done.stdout} {done.stderr}".split())[:_SAID_CHARACTERS]
