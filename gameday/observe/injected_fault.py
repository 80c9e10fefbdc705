"""A fault that went in, with what later steps need to measure its effects."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from gameday.cluster.gpu_pods import GpuPod
from gameday.observe.cluster_repair import ClusterRepair
from gameday.observe.kernel_log import KernelLogTail
from gameday.run.targets import ChosenTarget


@dataclass(frozen=True)
class InjectedFault:
    """The fault of a target, as the injector reported it."""

    target: ChosenTarget
    written_at: datetime
    """The time at which the fault went in, by the node's clock."""
    evidence: tuple[str, ...]
    pods_before: tuple[GpuPod, ...]
    """The GPU pods that ran on the target right before the fault."""
    log_tail: KernelLogTail
    cluster_repair: ClusterRepair | None = None
    """The watch of the cluster's own repair; None if the game-day repairs the node."""

    @property
    def node(self) -> str:
        return self.target.node

    def time_left(self, bound: timedelta, now: datetime) -> timedelta:
        """Return the rest of a bound that counts from the fault; negative once it is over."""
        return self.written_at + bound - now

    def note_arrival_in_log_store(self) -> None:
        """Record the hop into the log store, if a line that the injector wrote has arrived there."""
        self.log_tail.note_arrival(self.evidence)
