"""This machine as its kubelet sees it: always on, with real GPUs, and with pods that are processes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from gameday.faults.component_pods import Component
from gameday_rehearsal.nodes.components import Components
from gameday_rehearsal.nodes.identity import machine_id
from gameday_rehearsal.nodes.machine import MachineListener
from gameday_rehearsal.nodes.node_object import Hardware
from gameday_rehearsal.this_machine import NODE
from gameday_rehearsal.this_machine.gpus import GpuReader, Gpus

_OS_RELEASE = Path("/etc/os-release")
INSTANCE_TYPE = "this-machine"


class ThisMachine:
    """The machine; what happens on it is not up to us, so it takes note of nothing."""

    powered = True

    def __init__(self, gpus: Gpus, reader: GpuReader) -> None:
        self.name = NODE
        self.gpus = gpus.identities
        self.boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        self.booted_s = round(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME))
        self.away: set[Component] = set()
        self.monitors: set[int] = set()
        self.components = Components(lambda *_: None)
        self.listeners: list[MachineListener] = []
        self._reader = reader

    def gpus_changed(self) -> None:
        """Tell the listeners that GPUs ceased to answer, or answer again."""
        for listener in self.listeners:
            listener.gpus_changed()

    def is_active(self, unit: str) -> bool:
        """Return True: the kubelet is this process."""
        return True

    def known_gpus(self) -> list[int]:
        """Return the indices of all GPUs."""
        return [gpu.index for gpu in self.gpus]

    def gpu_serves(self, gpu: int) -> bool:
        """Return True if the GPU answers NVML."""
        return self._reader.answers(gpu)

    def set_in_cluster(self, *, present: bool) -> None:
        """Do nothing: the kernel log is shipped by this process, not by a pod."""

    def set_away(self, away: Iterable[Component]) -> None:
        """Note the components that have no running pod."""
        self.away = set(away)

    def occupy(self, gpus: Iterable[int], pid: int, command: str, pod: str) -> None:
        """Do nothing: the driver knows its users."""

    def vacate(self, pid: int) -> None:
        """Do nothing: the driver knows its users."""

    def set_pod_load(self, gpus: Iterable[int], load: float) -> None:
        """Do nothing: a simulated pod does not load a real GPU."""

    def worked(self, gpus: Sequence[int]) -> tuple[float, Sequence[float]]:
        """Return that a simulated pod has not worked on these GPUs."""
        return time.monotonic(), [0.0 for _ in gpus]


def hardware_of(gpus: Gpus) -> Hardware:
    """Return the node's hardware. Nothing of it names this machine, because reports are passed on."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Hardware(
        instance_type=INSTANCE_TYPE,
        provider="metal://this-machine",
        runtime="process://1.0.0",
        machine_id=machine_id(NODE),
        kernel=os.uname().release,
        os_image=_os_name(),
        cpus=os.cpu_count() or 1,
        memory_kib=pages >> 10,
        gpu_labels=gpus.labels,
    )


def _os_name() -> str:
    """Return PRETTY_NAME of os-release(5)."""
    try:
        lines = _OS_RELEASE.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "Linux"
    found = [line.partition("=")[2].strip("\"'") for line in lines if line.startswith("PRETTY_NAME=")]
    return found[0] if found else "Linux"
