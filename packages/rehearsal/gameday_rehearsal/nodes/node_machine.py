"""A machine as the kubelet on it needs it: the model of one, or the machine that this process runs on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from gameday.faults.component_pods import Component
from gameday_rehearsal.nodes.components import Components
from gameday_rehearsal.nodes.identity import GpuIdentity
from gameday_rehearsal.nodes.machine import MachineListener


class NodeMachine(Protocol):
    """A machine with GPUs that a kubelet makes a node."""

    name: str
    gpus: tuple[GpuIdentity, ...]
    powered: bool
    boot_id: str
    booted_s: int
    """Start of the machine, in seconds since 1970."""
    away: set[Component]
    monitors: set[int]
    """Processes that keep a GPU open and never compute, by their ids."""
    components: Components
    listeners: list[MachineListener]

    def is_active(self, unit: str) -> bool:
        """Return True if this unit of systemd runs."""

    def known_gpus(self) -> list[int]:
        """Return the indices of the GPUs that the driver knows."""

    def gpu_serves(self, gpu: int) -> bool:
        """Return True if the device plugin may offer this GPU."""

    def set_in_cluster(self, *, present: bool) -> None:
        """Note that the Node object is there, or that somebody deleted it."""

    def set_away(self, away: Iterable[Component]) -> None:
        """Note the components that have no running pod."""

    def occupy(self, gpus: Iterable[int], pid: int, command: str, pod: str) -> None:
        """Note that a process of a pod has these GPUs open; `pod` is its UID."""

    def vacate(self, pid: int) -> None:
        """Note that a process has ended."""

    def set_pod_load(self, gpus: Iterable[int], load: float) -> None:
        """Note the load that a pod that is only simulated puts on these GPUs."""

    def worked(self, gpus: Sequence[int]) -> tuple[float, Sequence[float]]:
        """Return a time, and the seconds at full pace that these GPUs have worked by then."""
