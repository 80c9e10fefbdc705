"""A run in its cluster, as the steps (`tasks/`) use it. It does not know Prefect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

from gameday.clock import Clock
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.manifests import GpuPodTemplate
from gameday.cluster.pods import PodFollower
from gameday.cluster.profile import ClusterProfile
from gameday.history.events import Event
from gameday.history.journal import History
from gameday.ledger.entries import Entry, Undo
from gameday.ledger.lease import Leases
from gameday.plan.models import Plan
from gameday.run.detection_chain import DetectionChain
from gameday.run.node_watch import NodeWatch
from gameday.run.nvml_samples import NvmlSamples
from gameday.run.record import RunRecord
from gameday.run.run_ledger import RunLedger
from gameday.run.season_member import SeasonMember
from gameday.run.servers import Servers
from gameday.values.results import Cleanliness, Hop

T = TypeVar("T")


@dataclass(frozen=True)
class ReadOnlyRun:
    """A run that can look at its cluster but change nothing: doctor, dry run, guardrails."""

    record: RunRecord
    profile: ClusterProfile
    servers: Servers
    nodes: NodeWatch

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def plan(self) -> Plan:
        return self.record.plan

    @property
    def member(self) -> SeasonMember | None:
        """The run's place in a season; None for a single run."""
        return self.record.member

    @property
    def clock(self) -> Clock:
        return self.record.clock

    @property
    def kubernetes(self) -> Kubernetes:
        return self.servers.kubernetes

    @property
    def quarantine_keys(self) -> tuple[str, ...]:
        """Keys of the taints that this run may cause: the plan's, and those of the cluster's detectors."""
        expected = (taint.key for taint in self.plan.expect.taints)
        return tuple(dict.fromkeys((*expected, *self.profile.quarantine_taint_keys)))

    @property
    def gpu_pod_template(self) -> GpuPodTemplate:
        """The image, class and tolerations of our GPU pods; a taint that the run waits for keeps them away."""
        tolerates = tuple(key for key in self.profile.ordinary_taint_keys if key not in self.quarantine_keys)
        return GpuPodTemplate(self.profile.canary_image, self.profile.canary_priority_class, tolerates)

    def note(self, event: Event) -> None:
        """Write an event into the history."""
        self.record.note(event)

    def problem(self, what: str, hint: str = "") -> None:
        """Note a problem that does not end the run."""
        self.record.problem(what, hint)

    def history(self) -> History:
        """Return everything noted so far."""
        return self.record.journal.history()

    def wait(self, what: str, timeout: timedelta, condition: Callable[[], T | None], every_s: float = 0.1) -> T | None:
        """Wait as `RunRecord.wait` does."""
        return self.record.wait(what, timeout, condition, every_s)


@dataclass(frozen=True)
class Run(ReadOnlyRun):
    """A run that holds its leases and its ledger, and may change the cluster."""

    leases: Leases
    pods: PodFollower
    ledger: RunLedger
    chain: DetectionChain
    excluded_nodes: Mapping[str, str]
    """Nodes that cannot be targets because dead runs left something there, each with the reason."""
    background: ExitStack
    """Resources, such as log tails, that a step starts and only the end of the run stops."""
    nvml: NvmlSamples = field(default_factory=NvmlSamples)
    before_undo: list[Callable[[Run], None]] = field(default_factory=list)
    """Functions to call before anything is undone, such as to note logs that go with their pods."""

    def intend(
        self, id: str, act: str, undo: Undo, node: str | None, duration: timedelta, *, defer_write: bool = False
    ) -> Entry:
        """Write intent and undo of a mutation as `RunLedger.intend` does."""
        return self.ledger.intend(id, act, undo, node, duration, defer_write=defer_write)

    def undo(self, entry: Entry) -> Cleanliness:
        """Undo and verify one entry as `RunLedger.undo` does."""
        return self.ledger.undo(entry, self.nodes)

    def hop(self, hop: Hop, node: str, at: datetime, source: str) -> None:
        """Record a hop of the detection chain, once per node."""
        self.chain.add(hop, node, at, source)
