"""A container's process: a real one for the agent and our shell script, a timer that looks like one for all others."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from gameday.host.shell_writer import GPUS, KMSG, SCRIPT
from gameday_rehearsal.nodes.container_log import ContainerLog, PrintedLog, TrainingLog, Worked
from gameday_rehearsal.nodes.cuda_errors import CudaLibrary
from gameday_rehearsal.nodes.kmsg_terminal import KmsgTerminal
from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.node_machine import NodeMachine
from gameday_rehearsal.nodes.sandbox import Sandbox
from kubesim.client import Object

AGENT_IMAGE = "ghcr.io/gpu-gameday/agent"
AGENT_MODULE = "gameday.agent"
RUN_FOR = "virtual-node.gameday.dev/run-for"
EXIT_CODE = "virtual-node.gameday.dev/exit-code"
GPU_LOAD = "virtual-node.gameday.dev/gpu-load"
DEFAULT_GPU_LOAD = 0.85

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SLEEP = re.compile(r"\bsleep\s+(\S+)")
_CHUNK = 65_536
_FIRST_CALL_AFTER_S = 1.0
"""Time from a simulated training's start to its first CUDA call."""
_UNCAUGHT = 1
"""Exit code of Python after an uncaught exception."""
_pids = itertools.count(20_000)  # simulated ones; only shown
_checkpoints: dict[str, list[int]] = {}
"""Checkpoints that ended containers left on the storage that all nodes share, by the UID of their Job or pod."""


class ContainerProcess(Protocol):
    @property
    def log(self) -> ContainerLog: ...

    @property
    def pid(self) -> int: ...

    @property
    def gpu_load(self) -> float:
        """Load that the process puts on each GPU it holds, 0 to 1."""

    def compute_on(self, worked: Worked) -> None:
        """Work on these GPUs from now on, at their pace."""

    async def wait(self) -> int:
        """Wait for the end; return the exit code as a container runtime reports it: 128 + the number of a signal."""

    def look(self) -> None:
        """Look at the files of its volumes, which may have changed."""

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


class RealProcess:
    """A program of this machine in a session of its own."""

    gpu_load = 0.0  # it works through the host, which puts the load of measurements on the model itself

    def __init__(self, process: asyncio.subprocess.Process, log: PrintedLog, at_end: Callable[[], None]) -> None:
        self._process = process
        self._at_end = at_end
        self.log = log
        self.pid = process.pid
        self._pump = asyncio.create_task(self._read_output())

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        environment: dict[str, str],
        folder: Path,
        log: PrintedLog,
        at_end: Callable[[], None] = lambda: None,
    ) -> RealProcess:
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=folder,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        return cls(process, log, at_end)

    async def wait(self) -> int:
        try:
            status = await self._process.wait()
        finally:
            self._at_end()
        self.kill()  # what the container's first process leaves behind ends with it
        await self._pump
        return 128 - status if status < 0 else status

    def compute_on(self, worked: Worked) -> None:
        """Do nothing: it works through the host."""

    def look(self) -> None:
        """Do nothing: it reads its files itself."""

    def terminate(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def _read_output(self) -> None:
        assert self._process.stdout
        try:
            while chunk := await self._process.stdout.read(_CHUNK):
                self.log.feed(chunk)
        finally:
            self.log.close()


class SimulatedProcess:
    """A process that runs for a time, or forever. It ends at once on SIGTERM, or by a CUDA error that it meets."""

    def __init__(
        self, name: str, owner: str, run_for_s: float | None, exit_code: int, gpu_load: float, library: CudaLibrary
    ) -> None:
        self.pid = library.pid
        self.gpu_load = gpu_load
        left = _checkpoints.get(owner)
        self._owner = owner
        self._library = library
        self._last_words: tuple[str, ...] = ()
        self.log = TrainingLog(name, datetime.now(UTC), left.pop() if left else 0, library.first_words)
        self._run_for_s = run_for_s
        self._exit_code = exit_code
        self._signal: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(_FIRST_CALL_AFTER_S, self.look)

    def compute_on(self, worked: Worked) -> None:
        self.log.compute_on(worked)

    def look(self) -> None:
        if (value := self._library.felt()) and not self._signal.done():
            self._last_words = self._library.last_words(value)
            self._end(_UNCAUGHT)

    async def wait(self) -> int:
        try:
            async with asyncio.timeout(self._run_for_s):
                return await asyncio.shield(self._signal)
        except TimeoutError:
            return self._exit_code
        finally:
            self.log.close(self._last_words)
            _checkpoints.setdefault(self._owner, []).append(self.log.last_checkpoint())

    def terminate(self) -> None:
        self._end(128 + signal.SIGTERM)

    def kill(self) -> None:
        self._end(128 + signal.SIGKILL)

    def _end(self, code: int) -> None:
        if not self._signal.done():
            self._signal.set_result(code)


async def start_container(
    pod: Object,
    container: Object,
    sandbox: Sandbox,
    restarts: int,
    own_environment: dict[str, str],
    machine: NodeMachine,
) -> ContainerProcess:
    """Start the container. Raises PodConfigError, and OSError if no process can be started."""
    if _is_shell_writer(container):
        return await _shell_writer(container, sandbox, restarts, machine)
    if not is_agent(container):
        return _simulated(pod, container, CudaLibrary(container, sandbox, next(_pids)))
    environment = sandbox.environment(
        container,
        {**own_environment, "GAMEDAY_TERMINATION_LOG": str(sandbox.termination_log(container, restarts))},
    )
    args = [sandbox.rewritten(container, arg) for arg in _agent_args(container)]
    log = PrintedLog(sandbox.log_file(container, restarts))
    argv = [sys.executable, "-m", "gameday_rehearsal.nodes.launch", AGENT_MODULE, *args]
    return await RealProcess.start(argv, environment, sandbox.root, log)


def _is_shell_writer(container: Object) -> bool:
    """Return True for a container that runs exactly our script, so that no pod runs its own on this machine.

    Its image is of somebody else, and does not matter here: the shell is this machine's.
    """
    return list(container.get("command") or ())[:3] == ["/bin/sh", "-c", SCRIPT]


async def _shell_writer(container: Object, sandbox: Sandbox, restarts: int, machine: NodeMachine) -> RealProcess:
    """Run the script with this machine's shell, on a virtual node with that node's kernel log and folder of GPUs."""
    log, environment = PrintedLog(sandbox.log_file(container, restarts)), {"PATH": os.environ.get("PATH", os.defpath)}
    if not isinstance(machine, Machine):
        return await RealProcess.start([str(word) for word in container["command"]], environment, sandbox.root, log)
    machine.log.require_open()
    gpus = sandbox.root / "gpus"
    for index in machine.known_gpus():
        (gpus / f"{machine.gpus[index].pci}.0").mkdir(parents=True, exist_ok=True)
    terminal = KmsgTerminal(machine.log)
    places = {KMSG: terminal.path, GPUS: str(gpus)}
    argv = [places.get(str(word), str(word)) for word in container["command"]]
    return await RealProcess.start(argv, environment, sandbox.root, log, terminal.close)


def is_agent(container: Object) -> bool:
    """Return True if the container is a real process here, not a simulated one.

    Our image has more than the agent: a pod may copy a file out of it.
    """
    command = container.get("command") or [AGENT_MODULE]
    return str(container["image"]).startswith(AGENT_IMAGE) and AGENT_MODULE in command


def _agent_args(container: Object) -> list[str]:
    """Return the arguments after the module. The image's entry point is the module, so `args` follow it, too."""
    command = [str(word) for word in container.get("command") or ()]
    own = command[command.index(AGENT_MODULE) + 1 :] if AGENT_MODULE in command else []
    return own + [str(word) for word in container.get("args") or ()]


def _simulated(pod: Object, container: Object, library: CudaLibrary) -> SimulatedProcess:
    meta = pod["metadata"]
    annotations = meta.get("annotations") or {}
    wants_gpus = bool((container.get("resources") or {}).get("limits", {}).get("nvidia.com/gpu"))
    run_for = annotations.get(RUN_FOR)
    return SimulatedProcess(
        name=f"{meta['namespace']}/{meta['name']}/{container['name']}",
        owner=next((one["uid"] for one in meta.get("ownerReferences") or () if one.get("controller")), meta["uid"]),
        run_for_s=_seconds(run_for) if run_for else _time_of(container),
        exit_code=_whole(annotations.get(EXIT_CODE)),
        gpu_load=_share(annotations.get(GPU_LOAD)) if wants_gpus else 0.0,
        library=library,
    )


def _time_of(container: Object) -> float | None:
    """Return the seconds of a leading `sleep N`, in argv or in `sh -c`. A `cp` takes none; None means forever."""
    if (container.get("command") or [""])[0] == "cp":
        return 0.0
    words = [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
    found = _SLEEP.search(" ".join(words))
    return _seconds(found[1]) if found else None


def _seconds(text: str) -> float | None:
    found = _DURATION.match(text)
    return float(found[1]) * _UNIT_S[found[2] or "s"] if found else None


def _whole(text: str | None) -> int:
    return int(text) & 0xFF if text and text.strip().isdecimal() else 0


def _share(text: str | None) -> float:
    try:
        return min(1.0, max(0.0, float(text))) if text else DEFAULT_GPU_LOAD
    except ValueError:
        return DEFAULT_GPU_LOAD
