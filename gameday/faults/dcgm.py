"""Calls of `dcgmi` for the faults on DCGM.

Outputs and exit statuses are those of DCGM's source (3.2 to 4.6), with three traps: `--gpuid` defaults to 1 and is
therefore always given; numbers are read by atol, so they are written in decimal; `test --introspect` shows how often a
field was sampled but not its value, so values are read with `dmon`. A `dmon` also makes the host engine take a real
sample, unless an injected one is newer.
"""

from __future__ import annotations

import json
import re
import threading

from gameday.errors import HostBusyError, HostError, NoCrictlError
from gameday.faults.component_pods import Component, Container, containers_of, pods_of
from gameday.host.base import Host, ProgramResult

BLANK = "9223372036854775792"
"""DCGM_INT64_BLANK (dcgm_structs.h). Injected, it makes a whole-number field read as having no value."""
BLANK_DOUBLE = "140737488355328.0"
"""DCGM_FP64_BLANK, for fields of floating point."""
DECIMALS = 3
"""The decimals of a floating-point field in `dmon`."""
_TIMEOUT_S = 15.0
"""Timeout of one call: a host engine answers immediately or is down, and dmon waits for one real sample."""
_NOT_FOUND = 127
_LOST = "GPU is lost"
"""The words of dcgmi for DCGM_ST_GPU_IS_LOST (exit 238): a GPU that NVML no longer lists."""
SAMPLING = "DCGM's sampling"
"""Claimed by a fault that stops it; shared by one that reads values, because a paused engine shows none."""
_INJECTED = "Successfully injected field info."
_ROW = re.compile(r"^GPU +(?P<gpu>\d+) +(?P<value>\S+)", re.MULTILINE)


def inject_value(host: Host, gpu: int, field: int, value: str, offset_s: int) -> None:
    """Put a sample into the cache.

    Args:
        host: The node.
        gpu: DCGM's number of the GPU.
        field: DCGM's id of the field.
        value: The value in decimal.
        offset_s: The sample's timestamp, in whole seconds after the start of the current second.

    Raises:
        HostError: dcgmi refused, or could not be run.
    """
    arguments = ("test", "--inject", "--gpuid", str(gpu), "-f", str(field), "-v", value, "--offset", str(offset_s))
    done = _dcgmi(host, *arguments)
    if done.exit_status or _INJECTED not in done.stdout:
        raise _refused(done)


def read_value(host: Host, gpu: int, field: int) -> str | None:
    """Return the newest value of a field as `dmon` prints it; None if it has none.

    Raises:
        HostBusyError: The host engine does not answer, or its collection is paused, and it knows no GPU meanwhile.
        HostError: dcgmi refused, or could not be run.
    """
    done = _dcgmi(host, "dmon", "-i", str(gpu), "-e", str(field), "-c", "1")
    if _LOST in done.output_line:
        raise HostError(
            f"GPU {gpu} is lost to DCGM, so that its values can no longer be read: reboot the node, which also empties "
            "the host engine's cache"
        )
    if done.exit_status and not _is_unreachable(done.output_line) and is_collection_paused(host):
        raise HostBusyError(
            "DCGM's collection is paused, and a paused host engine shows no value of any GPU: wait for the end of a "
            "`dcgmi diag`, or run `dcgmi test --resume`"
        )
    if done.exit_status:
        raise _refused(done)
    for row in _ROW.finditer(done.stdout):
        if int(row["gpu"]) == gpu:
            return None if row["value"] == "N/A" else row["value"]
    raise HostError(f"`{_line(done)}` shows no row for GPU {gpu}: {done.output_line}")


def is_collection_paused(host: Host) -> bool:
    """Return True while `test --pause` is in force, read from the state of DCGM's core module. Raises HostError."""
    done = _dcgmi(host, "modules", "-l", "-j")
    if done.exit_status:
        raise _refused(done)
    try:
        state = json.loads(done.stdout)["body"]["Core"]["children"]["State"]["value"]
    except (ValueError, KeyError, TypeError):
        raise HostError(f"`{_line(done)}` does not show the state of the Core module: {done.output_line}") from None
    return str(state) == "Paused"


def pause_collection(host: Host) -> str:
    """Stop all sampling, and return dcgmi's output. Raises HostError."""
    return _switch(host, "--pause")


def resume_collection(host: Host) -> str:
    """Let DCGM sample again, and return dcgmi's output. Raises HostError."""
    return _switch(host, "--resume")


def _switch(host: Host, option: str) -> str:
    done = _dcgmi(host, "test", option)
    if done.exit_status:
        raise _refused(done)
    return done.output_line


def _dcgmi(host: Host, *arguments: str) -> ProgramResult:
    return run_dcgmi(host, _TIMEOUT_S, *arguments)


def run_dcgmi(host: Host, timeout_s: float, *arguments: str, ended: threading.Event | None = None) -> ProgramResult:
    """Run the host's dcgmi; if it is missing or reaches no engine, run the one in the host engine's pod.

    Args:
        host: The node.
        timeout_s: As for `Host.run`.
        arguments: Those of dcgmi.
        ended: As for `Host.run`. In the host engine's pod it ends crictl, and dcgmi goes on.

    Raises:
        HostError: There is no dcgmi, or it does not end in time.
    """
    done = host.run(["dcgmi", *arguments], timeout_s, ended)
    if done.exit_status != _NOT_FOUND and not _is_unreachable(done.output_line):
        return done
    if container := _engine_in_a_pod(host):
        return host.run(["crictl", "exec", container.id, "dcgmi", *arguments], timeout_s, ended)
    if done.exit_status == _NOT_FOUND:
        raise HostError(
            f"no dcgmi on this node ({done.output_line or 'not found'}), and no pod of a host engine that has it: "
            "install DCGM's package (datacenter-gpu-manager) on the host"
        )
    return done


def _engine_in_a_pod(host: Host) -> Container | None:
    """Return a container of the host engine's pod; None if there is none. Raises HostError."""
    try:
        return next((one for pod in pods_of(host, Component.HOST_ENGINE) for one in containers_of(host, pod)), None)
    except NoCrictlError:
        return None


def _is_unreachable(output: str) -> bool:
    return "connect to host engine" in output or "establish a connection" in output


def _refused(done: ProgramResult) -> HostError:
    output = done.output_line
    if _is_unreachable(output):
        return HostBusyError(f"dcgmi cannot reach the node's host engine: is nvidia-dcgm running? {output}")
    return HostError(f"`{_line(done)}`: exit {done.exit_status}: {output or 'no output'}")


def _line(done: ProgramResult) -> str:
    return " ".join(done.argv)
