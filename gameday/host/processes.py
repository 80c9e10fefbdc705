"""The GPU processes of a real node, read from /proc: our workers, the users of a GPU device, DCGM's host engines.

The agent's pod has hostPID, so its /proc is the node's.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gameday.errors import HostError
from gameday.host.base import DcgmEngine, DcgmEngines, GpuUser, WorkOrder
from gameday.host.work import Work

_MODULE = "gameday.host.worker"
_KILL_TIMEOUT_S = 10.0
"""A killed process is gone once the driver has freed its memory; 80 GiB take about a second."""
_COMMAND_CHARACTERS = 100
_POD = re.compile(r"[-/]pod([0-9a-f][0-9a-f_-]{31,35})\b")
"""A pod's UID in a cgroup's path. The systemd cgroup driver writes `_` for `-`; a static pod's UID has no dashes."""
_MINOR = re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)
_ENGINE_THREAD, _HOST_ENGINE = "cache_mgr_main", "nv-hostengine"
"""The thread that every engine has and none of its clients, and the program that is only an engine (docs/sources.md,
DCGM engines)."""
_FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""The namespace that sees every process of the machine: PROC_PID_INIT_INO of Linux, include/linux/proc_ns.h."""


def start_worker(gpu: int, order: WorkOrder) -> Work:
    """Start a worker process and give it its order.

    Raises:
        HostError: The process cannot be started.
    """
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", _MODULE, f"--gpu={gpu}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={
                **os.environ,
                "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            },  # orders GPUs as NVML does; CUDA's default order is by speed
        )
    except OSError as error:
        raise HostError(f"cannot start {_MODULE}: {error.strerror}") from None
    assert process.stdin
    assert process.stdout
    stdin = process.stdin

    def send(line: str) -> None:
        try:
            stdin.write(line.encode() + b"\n")
            stdin.flush()
        except OSError as error:
            raise HostError(f"the worker of GPU {gpu} is gone: {error.strerror}") from None

    def cut_off() -> None:
        process.kill()
        process.wait()

    send(order.model_dump_json())
    return Work(process.stdout, cut_off, lambda utilization: send(f"{utilization:.3f}"))


def workers(proc: Path, gpu: int) -> list[int]:
    """Return the process ids of all our workers on this GPU, even those of other agents."""
    return [pid for pid, argv in _processes(proc) if argv[1:4] == ["-m", _MODULE, f"--gpu={gpu}"]]


def end_workers(proc: Path, gpu: int) -> None:
    """Kill all our workers on this GPU, and return once they are gone.

    Raises:
        HostError: A worker belongs to another user, or does not end.
    """
    deadline = time.monotonic() + _KILL_TIMEOUT_S
    while pids := workers(proc, gpu):
        if time.monotonic() > deadline:
            raise HostError(
                f"worker {pids[0]} of GPU {gpu} was killed and does not end: is the GPU hung? See the kernel log"
            )
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            except PermissionError:
                raise HostError(f"worker {pid} of GPU {gpu} belongs to another user; run the agent as root") from None
        time.sleep(0.05)


def device_users(proc: Path, pci: str) -> tuple[GpuUser, ...]:
    """Return the processes that have the GPU's /dev/nvidiaN open, and those of which not even root may know it.

    Args:
        proc: The node's /proc.
        pci: Address of the GPU, e.g. 0000:4e:00.

    Raises:
        HostError: The driver does not show the GPU, or a process's open files cannot be read for lack of root.
    """
    information = proc / "driver/nvidia/gpus" / f"{pci}.0" / "information"
    try:
        minor = _MINOR.search(information.read_text())
    except OSError as error:
        raise HostError(f"cannot read {information}: {error.strerror}; is the nvidia module loaded?") from None
    if minor is None:
        raise HostError(f"{information} names no `Device Minor`, so the GPU's users cannot be found")
    device = f"/dev/nvidia{minor[1]}"
    return tuple(
        GpuUser(pid=pid, command=" ".join(argv)[:_COMMAND_CHARACTERS], pod=_pod_of(proc / str(pid)), seen=bool(opened))
        for pid, argv in _processes(proc)
        if (opened := _has_open(proc / str(pid) / "fd", device)) is not False
    )


def dcgm_engines(proc: Path) -> DcgmEngines:
    """Return the processes that run a DCGM host engine, found by its thread: thread names need no right to be read.

    Args:
        proc: The node's /proc.
    """
    engines: list[DcgmEngine] = []
    hidden: list[int] = []
    for pid, argv in _processes(proc):
        process = proc / str(pid)
        try:
            threads = _threads(process)
        except PermissionError:
            hidden.append(pid)
            continue
        if _ENGINE_THREAD in threads:
            command = " ".join(argv)[:_COMMAND_CHARACTERS]
            embedded = _HOST_ENGINE not in threads
            engines.append(DcgmEngine(pid=pid, command=command, pod=_pod_of(process), embedded=embedded))
    return DcgmEngines(engines=tuple(engines), unseen=tuple(_unseen(proc, hidden)))


def _threads(process: Path) -> set[str]:
    """Return the names of a process's threads; none if it has ended. Raises PermissionError."""
    names: set[str] = set()
    try:
        for thread in (process / "task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # only this thread has ended
                names.add((thread / "comm").read_text("utf-8", "replace").rstrip("\n"))
    except (FileNotFoundError, ProcessLookupError):
        return set()
    return names


def _unseen(proc: Path, hidden: list[int]) -> Iterator[str]:
    """Yield reasons why processes of the machine may have been missed."""
    try:
        namespace = str((proc / "self/ns/pid").readlink())
    except OSError as error:
        yield f"processes: /proc/self/ns/pid cannot be read ({error.strerror})"
    else:
        if namespace != _FIRST_PID_NAMESPACE:
            yield "processes outside this PID namespace: the pod lacks hostPID, or the node is a container itself"
    if not (proc / "1").exists():
        yield "other users' processes: /proc hides them (mount option hidepid)"
    if hidden:
        more = f" and {len(hidden) - 1} more" if hidden[1:] else ""
        yield f"the threads of process {hidden[0]}{more}: permission denied"


def _pod_of(process: Path) -> str:
    try:
        found = _POD.search((process / "cgroup").read_text())
    except OSError:
        return ""  # the process has ended
    return found[1].replace("_", "-") if found else ""


def _has_open(descriptors: Path, device: str) -> bool | None:
    """Return None if root may not read it: of a process with more capabilities, like process 1 of some machines."""
    try:
        return any(str(link.readlink()) == device for link in descriptors.iterdir())
    except (FileNotFoundError, ProcessLookupError):  # the process has ended, or closed the file
        return False
    except PermissionError:
        if os.geteuid() == 0:
            return None
        raise HostError(f"cannot read {descriptors}: run the agent as root, privileged and with hostPID") from None


def _processes(proc: Path) -> list[tuple[int, list[str]]]:
    """Return (pid, argv) of every process; a zombie, a kernel thread and a hidden process have an empty argv."""
    found: list[tuple[int, list[str]]] = []
    for folder in proc.iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            raw = (folder / "cmdline").read_bytes()
        except PermissionError:  # mount option hidepid=1
            raw = b""
        except OSError:
            continue  # the process has ended
        found.append((int(folder.name), raw.decode("utf-8", "replace").rstrip("\0").split("\0")))
    return found
