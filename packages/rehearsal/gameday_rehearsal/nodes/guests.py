"""The guest's processes: started and ended with their nodes, and restarted when they end by themselves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel

from gameday.errors import StartError
from gameday.processes.ports import HeldPorts
from gameday_rehearsal.guests.order import GuestOrder
from gameday_rehearsal.guests.placeholders import Placeholder, fill
from gameday_rehearsal.nodes import guest_launcher
from gameday_rehearsal.nodes.guest_output import GuestOutput
from gameday_rehearsal.nodes.kernel_log_files import NodeFiles
from gameday_rehearsal.nodes.machine import Machine, MachineListener

log = logging.getLogger(__name__)

CLUSTER = "cluster"
"""Name of the instance of a guest that runs once for the whole cluster."""
_GRACE_S = 3.0  # shorter than the rehearsal's wait for the nodes' own process, so that a guest is gone before that
_AFTER_GRACE_S = 2.0
_BACK_OFF_S = (1.0, 30.0)
_LIVED_LONG_S = 60.0  # the pause starts small again after a process that ran this long
_FROM_US = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR")
Values = Mapping[Placeholder, str]


class InstanceStatus(BaseModel):
    """A process of the guest, as the nodes' server shows it."""

    state: str
    """`running`; `down` if its node is; `waiting` for its next start."""
    pid: int | None
    """PID of the process above its processes, and of their process group."""
    started: str | None
    """Time of the last start, UTC, ISO 8601."""
    starts: int
    ended_by_itself: int
    """Number of times that it ended while its node was up."""
    last_exit: str | None
    """The last end of the process: `exit status 1` or `signal 9`."""
    flooded: bool
    """True if it has printed more than is kept."""
    rss_bytes: int
    cpu_s: float
    log: str


class GuestsStatus(BaseModel):
    """The guest and its processes, by the node that they watch, or `cluster`."""

    name: str
    version: str
    instances: dict[str, InstanceStatus]


class Instance(MachineListener):
    """The guest's process on one node, or for the cluster."""

    def __init__(self, order: GuestOrder, name: str, values: Values) -> None:
        """Prepare its folder and its output; nothing is started. Raises OSError."""
        self._order = order
        self._name = name
        self._state = order.outputs / name
        self._state.mkdir(mode=0o700, parents=True)
        self._values = {**values, Placeholder.STATE: str(self._state)}
        self.output = GuestOutput(order.outputs / f"{name}.log")
        self._wanted, self._unwanted = asyncio.Event(), asyncio.Event()
        self._unwanted.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._process: subprocess.Popen[bytes] | None = None
        self._started: datetime | None = None
        self._starts = 0
        self._ended_by_itself = 0
        self._last_exit: str | None = None

    async def keep(self) -> None:
        """Keep it running while it is wanted, until cancelled."""
        pause_s = _BACK_OFF_S[0]
        while True:
            await self._wanted.wait()
            if self._unwanted.is_set():
                continue
            begun = time.monotonic()
            await self._run_once()
            self._ended_by_itself += self._wanted.is_set()
            if time.monotonic() - begun >= _LIVED_LONG_S:
                pause_s = _BACK_OFF_S[0]
            try:
                async with asyncio.timeout(pause_s):
                    await self._unwanted.wait()
                pause_s = _BACK_OFF_S[0]
            except TimeoutError:
                pause_s = min(2 * pause_s, _BACK_OFF_S[1])

    def up(self) -> None:
        self._unwanted.clear()
        self._wanted.set()

    async def going_down(self) -> None:
        await self.stop()

    async def stop(self) -> None:
        """End the process and all that it started: SIGTERM, then SIGKILL for what is left after three seconds."""
        self._wanted.clear()
        self._unwanted.set()
        self._terminate()
        try:
            async with asyncio.timeout(_GRACE_S + _AFTER_GRACE_S):
                await self._idle.wait()
        except TimeoutError:
            log.error("guest on %s does not end; its processes are killed", self._name)
            self._kill()

    def status(self, children: Mapping[int, list[int]]) -> InstanceStatus:
        """Return its state; `children` maps each process of this machine to its children."""
        process = self._process
        rss_bytes, cpu_s = _usage(process.pid, children) if process else (0, 0.0)
        waiting = "waiting" if self._wanted.is_set() else "down"
        return InstanceStatus(
            state="running" if process else waiting,
            pid=process.pid if process else None,
            started=self._started.isoformat() if self._started else None,
            starts=self._starts,
            ended_by_itself=self._ended_by_itself,
            last_exit=self._last_exit,
            flooded=self.output.flooded,
            rss_bytes=rss_bytes,
            cpu_s=round(cpu_s, 2),
            log=str(self.output.path),
        )

    async def _run_once(self) -> None:
        try:
            self._process = process = self._start()
        except OSError as error:
            self._last_exit = f"not started: {error.strerror}"
            return
        except StartError as error:
            self._last_exit = f"not started: {error}"
            return
        self._started = datetime.now(UTC)
        self._starts += 1
        self._idle.clear()
        pumping = asyncio.create_task(self._pump(process))
        try:
            status = await _exit_of(process)
            self._last_exit = f"signal {-status}" if status < 0 else f"exit status {status}"
        finally:
            self._kill()  # what is left if its launcher was killed
            self._process = None
            await asyncio.wait({pumping}, timeout=_AFTER_GRACE_S)
            pumping.cancel()
            self._idle.set()

    def _start(self) -> subprocess.Popen[bytes]:
        with HeldPorts(1) as held:
            values = {**self._values, Placeholder.PORT: str(held.numbers[0])}
        guest = self._order.guest
        environment = {name: os.environ[name] for name in _FROM_US if name in os.environ}
        # Without these two it might find the kubeconfig of a real cluster.
        environment |= {"HOME": str(self._state), "KUBECONFIG": str(self._order.kubeconfig)}
        environment |= {name: fill(text, values) for name, text in guest.environment.items()}
        launcher = (sys.executable, "-I", "-S", guest_launcher.__file__, str(os.getpid()), str(_GRACE_S))
        return subprocess.Popen(
            [*launcher, *(fill(word, values) for word in guest.command)],
            cwd=self._order.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    async def _pump(self, process: subprocess.Popen[bytes]) -> None:
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, process.stdout)
        try:
            await self.output.pump(reader)
        finally:
            transport.close()

    def _terminate(self) -> None:
        if self._process:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()

    def _kill(self) -> None:
        if self._process:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)


class Guests:
    """All processes of the guest."""

    def __init__(self, order: GuestOrder, instances: Mapping[str, Instance]) -> None:
        self._order = order
        self.instances = instances

    def status(self) -> GuestsStatus:
        """Return the state of all of them."""
        guest = self._order.guest
        children = guest_launcher.children()
        found = {name: instance.status(children) for name, instance in self.instances.items()}
        return GuestsStatus(name=guest.name, version=guest.version, instances=found)


@asynccontextmanager
async def running(
    order: GuestOrder, machines: Mapping[str, Machine], files: Mapping[str, NodeFiles], url: str, hosts_url: str
) -> AsyncIterator[Guests]:
    """Keep the guest running for the block, on every node or once. Raises OSError.

    `machines` are the GPU nodes by name, `files` the files of each; `url` is the nodes' server, and `hosts_url` the
    hosts there.
    """
    values: Values = {
        Placeholder.KUBECONFIG: str(order.kubeconfig),
        Placeholder.LOKI_URL: order.loki_url,
        Placeholder.PROMETHEUS_URL: order.prometheus_url,
        Placeholder.METRICS_URL: f"{url}/metrics",
        Placeholder.HOSTS_URL: hosts_url,
        Placeholder.FOLDER: str(order.folder),
    }
    if order.guest.per_node:
        instances = {name: Instance(order, name, {**values, **_of_node(name, found)}) for name, found in files.items()}
    else:
        instances = {CLUSTER: Instance(order, CLUSTER, values)}
    for name, instance in instances.items():
        if machine := machines.get(name):
            machine.listeners.append(instance)
        if machine is None or machine.powered:
            instance.up()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(instance.keep()) for instance in instances.values()]
        try:
            yield Guests(order, instances)
        finally:
            await asyncio.gather(*(instance.stop() for instance in instances.values()))
            for task in tasks:
                task.cancel()


def _of_node(name: str, files: NodeFiles) -> Values:
    return {
        Placeholder.NODE: name,
        Placeholder.KMSG: str(files.kmsg),
        Placeholder.KERNEL_LOG: str(files.kernel_log),
        Placeholder.NVML_CONFIG: str(files.nvml_config),
    }


async def _exit_of(process: subprocess.Popen[bytes]) -> int:
    """Return the exit status as soon as there is one; asyncio would wait until nobody has the output open."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    file = os.pidfd_open(process.pid)
    loop.add_reader(file, ended.set)
    try:
        await ended.wait()
        return process.wait()
    finally:
        loop.remove_reader(file)
        os.close(file)


def _usage(launcher: int, children: Mapping[int, list[int]]) -> tuple[int, float]:
    """Return the memory in bytes and the processor time in seconds of a launcher's processes, without its own."""
    memory, cpu_s = 0, 0.0
    for pid in (launcher, *guest_launcher.descendants(launcher, children)):
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        # proc(5): utime, stime, and those of ended children
        times = fields[13:15] if pid == launcher else fields[11:15]
        cpu_s += sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
        memory += 0 if pid == launcher else int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    return memory, cpu_s
