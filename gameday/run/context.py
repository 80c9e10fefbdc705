"""What every step is given: one object for the run, passed by reference and never serialized."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar

from gameday.cluster.alertmanager import Alertmanager
from gameday.cluster.http import AdapterError
from gameday.cluster.kubernetes import (
    REASON_ANNOTATION,
    GpuPod,
    Kubernetes,
    decided_at,
    gpu_pod,
    snapshot,
    taint_manager,
)
from gameday.cluster.loki import Loki
from gameday.cluster.pods import PodFollower
from gameday.cluster.profile import ClusterProfile
from gameday.cluster.prometheus import Prometheus
from gameday.cluster.watch import Follower
from gameday.history.events import (
    AlertSeen,
    Cleanliness,
    Event,
    FaultInjected,
    FaultUndone,
    Hop,
    HopSeen,
    IntentRecorded,
    NodeSeen,
    NodeSnapshot,
    Problem,
    Step,
    Taint,
    TaintSeen,
    Target,
    WaitStarted,
)
from gameday.history.journal import Journal
from gameday.ledger.entries import Entry, RestoreNode, Undo
from gameday.ledger.lease import Leases
from gameday.ledger.ledger import Ledger
from gameday.ledger.undo import undo_entry
from gameday.plan.load import LoadedPlan
from gameday.plan.models import Plan
from gameday.run.stop import Abort, RefusedError

T = TypeVar("T")
# An entry expires this long after its fault's own deadline: the agent, who is first, must have had its chance.
EXPIRY_MARGIN = timedelta(seconds=30)
_SYNCED_WITHIN_S = 10.0
# Our controller takes its reason off a node one or two requests after the taint is gone.
_TIDIED_WITHIN_S = 5.0


class Servers:
    """The adapters of one run, opened together and closed together."""

    def __init__(self, profile: ClusterProfile) -> None:
        self.kubernetes = Kubernetes(profile)
        self.prometheus = Prometheus(profile.prometheus)
        self.alertmanager = Alertmanager(profile.alertmanager)
        self.loki = Loki(profile)

    def close(self) -> None:
        for server in (self.prometheus, self.alertmanager, self.loki, self.kubernetes):
            server.close()


class LogTail(Protocol):
    """What a step starts before the fault and reads after it."""

    def note(self) -> None: ...

    def stop(self) -> None: ...


class Run:
    """One game-day from its first event to its last."""

    def __init__(self, id: str, folder: Path, loaded: LoadedPlan, profile: ClusterProfile, journal: Journal) -> None:
        self.id = id
        self.folder = folder
        self.loaded = loaded
        self.profile = profile
        self.journal = journal
        self.abort = Abort()
        self.started = datetime.now(UTC)
        self.random = random.Random(loaded.plan.targets.seed)  # noqa: S311 - a stated, repeatable choice
        self.targets: tuple[Target, ...] = ()
        self.step = Step.BASELINE
        self.servers: Servers
        self.ledger: Ledger
        self.leases: Leases
        self.pods: PodFollower
        self.nodes: dict[str, Follower] = {}
        self.node_pods: dict[str, Follower] = {}
        self.before: dict[str, NodeSnapshot] = {}
        self.ran_before: dict[str, list[GpuPod]] = {}
        self._taints: dict[str, set[Taint]] = {}
        self.hops: set[tuple[Hop, str]] = set()
        self.restored: set[str] = set()
        self.log_tails: dict[str, LogTail] = {}
        self.alerts: dict[str, AlertSeen] = {}

    @property
    def plan(self) -> Plan:
        return self.loaded.plan

    @property
    def kubernetes(self) -> Kubernetes:
        return self.servers.kubernetes

    @property
    def quarantine_keys(self) -> tuple[str, ...]:
        """Keys of the taints that may come because of this run: the plan's, and those the cluster's detectors use."""
        expected = (taint.key for taint in self.plan.expect.taints)
        return tuple(dict.fromkeys((*expected, *self.profile.quarantine_taint_keys)))

    def note(self, event: Event) -> None:
        """Write into the history; a history that cannot be written ends the run, after its undo."""
        self.journal.append(event)
        if self.journal.failed is not None:
            why = f"the history {self.journal.path} cannot be written: {self.journal.failed.strerror}"
            self.abort.request("guard", why)

    def problem(self, what: str, hint: str = "") -> None:
        self.note(Problem(step=self.step, what=what, hint=hint))

    def name(self, purpose: str, number: int = 0) -> str:
        """An object's name, unique to the run and the purpose."""
        return f"gd-{self.id}-{purpose}" + (f"-{number}" if number else "")

    def wait(self, what: str, timeout: timedelta, condition: Callable[[], T | None], every_s: float = 0.1) -> T | None:
        """The condition's first non-None value, or None after `timeout`; asks at once and then every `every_s`.

        Raises AbortedError when somebody asks the run to stop, and whatever the condition raises.
        """
        limit = max(0.0, timeout.total_seconds())
        self.note(WaitStarted(step=self.step, what=what, deadline_s=limit))
        deadline = time.monotonic() + limit
        while True:
            self.abort.check()
            value = condition()
            if value is not None:
                return value
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self.abort.sleep(min(every_s, left))

    def intend(
        self, id: str, act: str, undo: Undo, node: str | None, lasts: timedelta, *, with_next: bool = False
    ) -> Entry:
        """Write intent and undo into the ledger and the history; only then may the act be done.

        `with_next`: into the ledger together with the next intent, which sets this one off.
        """
        expires = datetime.now(UTC) + lasts + EXPIRY_MARGIN
        entry = self.ledger.intend(id=id, act=act, node=node, undo=undo, expires=expires, with_next=with_next)
        self.note(IntentRecorded(intent=id, act=act, undo=undo.kind, object=entry.object, node=node, expires=expires))
        return entry

    def undo(self, entry: Entry) -> Cleanliness:
        """Undo one entry, verify it, and write down what was found; never raises for a cluster's sake."""
        done = undo_entry(self.kubernetes, entry, self.id, self.pods)
        self.settle(entry, done.cleanliness, done.evidence, by_deadline=done.by_deadline)
        if isinstance(entry.undo, RestoreNode) and entry.node and done.cleanliness is Cleanliness.CLEAN:
            self.restored.add(entry.node)
        return done.cleanliness

    def settle(
        self, entry: Entry, cleanliness: Cleanliness, evidence: tuple[str, ...], *, by_deadline: bool = False
    ) -> None:
        by = "deadline" if by_deadline else "flow"
        self.note(FaultUndone(intent=entry.id, node=entry.node, by=by, cleanliness=cleanliness, evidence=evidence))
        try:
            self.ledger.settle(entry, cleanliness, by, evidence)
        except AdapterError as error:
            self.problem(f"the ledger still lists {entry.id} as open: {error}", "run `gameday reap` when it is back")

    def follow_targets(self, chosen: tuple[NodeSnapshot, ...]) -> None:
        """Watch the targets and the pods on them from now on, so that what happens is dated when it does.

        Raises RefusedError when a watch does not come up.
        """
        for seen in chosen:
            self.before[seen.node] = seen
            core = self.kubernetes.core
            node = Follower(core.list_node, self._node_changed, field_selector=f"metadata.name={seen.node}")
            pods = Follower(core.list_pod_for_all_namespaces, field_selector=f"spec.nodeName={seen.node}")
            self.nodes[seen.node], self.node_pods[seen.node] = node.__enter__(), pods.__enter__()
            if not (node.wait_synced(_SYNCED_WITHIN_S) and pods.wait_synced(_SYNCED_WITHIN_S)):
                raise RefusedError(f"no watch of {seen.node} and its pods within {_SYNCED_WITHIN_S:g} s")
            self.ran_before[seen.node] = self.gpu_pods_on(seen.node)

    def gpu_pods_on(self, node: str) -> list[GpuPod]:
        """Pods that hold GPUs of the node now, as the watch last saw them; those that have ended hold none."""
        found = [gpu_pod(pod) for pod in self.node_pods[node].objects()]
        return [pod for pod in found if pod.gpus and pod.phase not in ("Succeeded", "Failed")]

    def _node_changed(self, kind: str, node: Any) -> None:
        """Note every taint that comes or goes on a target; called in the watch's thread."""
        name, now = node.metadata.name, set(snapshot(node).taints)
        decided = decided_at(node)
        if decided and self.step is not Step.BASELINE:
            self.hop(Hop.DECIDED, name, decided, f"annotation {REASON_ANNOTATION}")
        for taint in now ^ self._taints.setdefault(name, set(self.before[name].taints)):
            self._note_taint(name, taint, present=taint in now, manager=taint_manager(node))
        self._taints[name] = now

    def _note_taint(self, node: str, taint: Taint, *, present: bool, manager: str | None) -> None:
        at = datetime.now(UTC)
        self.note(TaintSeen(node=node, taint=taint, present=present, manager=manager, at=at))
        expected = {(t.key, t.value, str(t.effect)) for t in self.plan.expect.taints}
        if present and self.step is not Step.BASELINE and (taint.key, taint.value, taint.effect) in expected:
            self.hop(Hop.TAINTED, node, at, f"watch of the node; written by {manager or 'an unnamed manager'}")

    def node_now(self, name: str) -> NodeSnapshot | None:
        """The node as the watch last saw it; None where it is not (or not yet) there."""
        node = self.nodes[name].named(name) if name in self.nodes else None
        return snapshot(node) if node is not None else None

    def see_nodes_during(self) -> None:
        """Record every target as its watch last saw it."""
        for target in self.targets:
            if seen := self.node_now(target.node):
                self.note(NodeSeen(phase="during", snapshot=seen))

    def see_nodes_after(self) -> None:
        """Record every target, read anew, once its detector had time to tidy up after its taint went.

        One that cannot be read is a problem, not an end.
        """
        for target in self.targets:
            self._detector_tidied(target.node)
            try:
                self.note(NodeSeen(phase="after", snapshot=snapshot(self.kubernetes.node(target.node))))
            except AdapterError as error:
                self.problem(f"node {target.node} could not be read: {error}")

    def _detector_tidied(self, node: str) -> None:
        """Wait for the reason to go from a node we took the taint off; one kept in quarantine keeps its reason."""
        if node not in self.restored:
            return
        deadline = time.monotonic() + _TIDIED_WITHIN_S
        follower = self.nodes[node]
        with follower.changed:
            while (now := self.node_now(node)) and REASON_ANNOTATION in now.annotations:
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                follower.changed.wait(left)

    def hop(self, hop: Hop, node: str, at: datetime, source: str) -> None:
        """Record a link of the detection chain, once per node."""
        if (hop, node) not in self.hops:
            self.hops.add((hop, node))
            self.note(HopSeen(hop=hop, node=node, at=at, source=source))

    def injected(self) -> dict[str, FaultInjected]:
        """By node: the fault that went in."""
        return {event.target.node: event for event in self.journal.history().of(FaultInjected)}

    def left_of(self, bound: timedelta, node: str) -> timedelta:
        """What is left of a bound that counts from the fault going in on this node."""
        return self.injected()[node].written_at + bound - datetime.now(UTC)
