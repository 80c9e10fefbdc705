"""Processes of a real node that have to do with GPUs, as /proc shows them: our workers, and who has a device open.

The agent's pod has hostPID, so its /proc is the node's.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from gameday.errors import HostError
from gameday.host.base import GpuUser, WorkOrder
from gameday.host.work import Work

_MODULE = "gameday.host.worker"
_GONE_WITHIN_S = 10.0
"""A killed process is gone once the driver has freed its memory: 80 GiB take about a second."""
_COMMAND_CHARACTERS = 100
_POD = re.compile(r"[-/]pod([0-9a-f][0-9a-f_-]{31,35})\b")
"""In a cgroup's path, by either cgroup driver; systemd's writes `_` for `-`. A static pod's UID has no dashes."""
_MINOR = re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)


def begin_work(gpu: int, order: WorkOrder) -> Work:
    """Start a worker. Raises HostError where this machine cannot."""
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", _MODULE, f"--gpu={gpu}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},  # as NVML counts; CUDA's own order is by speed
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
    """Process ids of all our workers on this GPU, whoever started them."""
    return [pid for pid, argv in _processes(proc) if argv[1:4] == ["-m", _MODULE, f"--gpu={gpu}"]]


def end_workers(proc: Path, gpu: int) -> None:
    """Kill them, and return once they are gone. Raises HostError when one stays."""
    deadline = time.monotonic() + _GONE_WITHIN_S
    while left := workers(proc, gpu):
        if time.monotonic() > deadline:
            raise HostError(f"worker {left[0]} of GPU {gpu} was killed and stays: is the GPU hung? See the kernel log")
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            except PermissionError:
                raise HostError(f"worker {pid} of GPU {gpu} is another user's; run the agent as root") from None
        time.sleep(0.05)


def device_users(proc: Path, pci: str) -> tuple[GpuUser, ...]:
    """Who has /dev/nvidiaN of the GPU at this address open. Raises HostError where that cannot be known."""
    information = proc / "driver/nvidia/gpus" / f"{pci}.0" / "information"
    try:
        minor = _MINOR.search(information.read_text())
    except OSError as error:
        raise HostError(f"cannot read {information}: {error.strerror}; is the nvidia module loaded?") from None
    if minor is None:
        raise HostError(f"{information} names no `Device Minor`, so nobody knows who uses the GPU")
    device = f"/dev/nvidia{minor[1]}"
    return tuple(
        GpuUser(pid=pid, command=" ".join(argv)[:_COMMAND_CHARACTERS], pod=_pod_of(proc / str(pid)))
        for pid, argv in _processes(proc)
        if _has_open(proc / str(pid) / "fd", device)
    )


def _pod_of(process: Path) -> str:
    try:
        found = _POD.search((process / "cgroup").read_text())
    except OSError:
        return ""  # it ended meanwhile
    return found[1].replace("_", "-") if found else ""


def _has_open(descriptors: Path, device: str) -> bool:
    try:
        return any(str(link.readlink()) == device for link in descriptors.iterdir())
    except (FileNotFoundError, ProcessLookupError):  # it ended, or closed the file, meanwhile
        return False
    except PermissionError:
        raise HostError(f"cannot look into {descriptors}: run the agent as root, privileged and with hostPID") from None


def _processes(proc: Path) -> list[tuple[int, list[str]]]:
    """(pid, argv) of every process; a zombie and a kernel thread have no argv."""
    found: list[tuple[int, list[str]]] = []
    for folder in proc.iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            raw = (folder / "cmdline").read_bytes()
        except OSError:
            continue  # it ended meanwhile
        found.append((int(folder.name), raw.decode("utf-8", "replace").rstrip("\0").split("\0")))
    return found
