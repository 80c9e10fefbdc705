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

from gameday.errors import HostError, NoCrictlError
from gameday.faults.component_pods import Component, Container, containers_of, pods_of
from gameday.host.base import Host, ProgramResult

BLANK = "9223372036854775792"
"""DCGM_INT64_BLANK (dcgm_structs.h): injected, it makes a whole-number field read as having no value."""
BLANK_DOUBLE = "140737488355328.0"
"""DCGM_FP64_BLANK, for fields of floating point."""
DECIMALS = 3
"""What `dmon` prints of a floating-point field."""
_WITHIN_S = 15.0
"""One call: it connects to its host engine, which answers at once or is down. dmon waits for one real sample."""
_REMOTE_ENGINE = "DCGM_REMOTE_HOSTENGINE_INFO"
_REMOTE_ENGINE_OPTIONS = {"-r", "--remote-hostengine-info"}
_NOT_FOUND = 127
_INJECTED = "Successfully injected field info."
_ROW = re.compile(r"^GPU +(?P<gpu>\d+) +(?P<value>\S+)", re.MULTILINE)


def refuse_embedded_engine(host: Host) -> None:
    """Raises HostError where dcgm-exporter is a pod of this node that runs a host engine of its own.

    It does so unless it is told of another (NVIDIA's reference of dcgm-exporter), and then nothing that is done to
    the node's host engine is in its metrics. An exporter that is no pod is believed to ask the node's.
    """
    try:
        pods = pods_of(host, Component.EXPORTER)
    except NoCrictlError:
        return
    for pod in pods:
        if not any(_asks_another(container) for container in containers_of(host, pod)):
            raise HostError(
                f"pod {pod} runs a DCGM host engine of its own, which nobody else reaches: what is injected into the "
                f"node's would not be in its metrics. Set {_REMOTE_ENGINE} for it (GPU operator: dcgm.enabled=true)"
            )


def _asks_another(container: Container) -> bool:
    options = {argument.partition("=")[0] for argument in container.argv}
    return bool(container.environment.get(_REMOTE_ENGINE) or options & _REMOTE_ENGINE_OPTIONS)


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
    raise HostError(f"`{_line(done)}` shows no row for GPU {gpu}: {done.output_line}")


def collection_paused(host: Host) -> bool:
    """Whether `test --pause` is in force, by the state of DCGM's core module. Raises HostError."""
    done = _dcgmi(host, "modules", "-l", "-j")
    if done.exit_status:
        raise _refused(done)
    try:
        state = json.loads(done.stdout)["body"]["Core"]["children"]["State"]["value"]
    except (ValueError, KeyError, TypeError):
        raise HostError(f"`{_line(done)}` does not tell the state of the Core module: {done.output_line}") from None
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
    return done.output_line


def _dcgmi(host: Host, *arguments: str) -> ProgramResult:
    done = host.run(["dcgmi", *arguments], _WITHIN_S)
    if done.exit_status != _NOT_FOUND and not _unreachable(done.output_line):
        return done
    if container := _engine_in_a_pod(host):
        return host.run(["crictl", "exec", container.id, "dcgmi", *arguments], _WITHIN_S)
    if done.exit_status == _NOT_FOUND:
        raise HostError(
            f"no dcgmi on this node ({done.output_line or 'not found'}), and no pod of a host engine that would have "
            "it: install DCGM's package (datacenter-gpu-manager) on the host"
        )
    return done


def _engine_in_a_pod(host: Host) -> Container | None:
    """Raises HostError."""
    try:
        return next((one for pod in pods_of(host, Component.HOST_ENGINE) for one in containers_of(host, pod)), None)
    except NoCrictlError:
        return None


def _unreachable(said: str) -> bool:
    return "connect to host engine" in said or "establish a connection" in said


def _refused(done: ProgramResult) -> HostError:
    said = done.output_line
    if _unreachable(said):
        return HostError(f"dcgmi cannot reach the node's host engine: is nvidia-dcgm running? {said}")
    return HostError(f"`{_line(done)}`: exit {done.exit_status}: {said or 'no word'}")


def _line(done: ProgramResult) -> str:
    return " ".join(done.argv)
