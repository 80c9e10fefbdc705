"""What every step is given: one object for the run, passed by reference and never serialized."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kubernetes.informer import ADDED, DELETED

from gameday.cluster.gpu_pods import GpuPod, gpu_pod
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.manifests import RUN_LABEL, GpuPodTemplate
from gameday.cluster.nodes import REASON_ANNOTATION, decided_at, snapshot, taint_manager
from gameday.cluster.pods import PodFollower
from gameday.cluster.profile import ClusterProfile
from gameday.cluster.watch import Follower
from gameday.errors import AdapterError, LeaseLostError
from gameday.history.events import (
    AlertSeen,
    CordonSeen,
    Event,
    FaultInjected,
    FaultUndone,
    HopSeen,
    IntentRecorded,
    NodeSeen,
    Problem,
    SignalUnwatched,
    TaintSeen,
    WaitStarted,
)
from gameday.history.journal import Journal
from gameday.ledger.entries import Entry, RestoreNode, Undo
from gameday.ledger.lease import Leases, seconds_awake_or_not
from gameday.ledger.ledger import Ledger
from gameday.ledger.undo import undo_entry
from gameday.plan.load import LoadedPlan
from gameday.plan.models import Plan
from gameday.run.abort import Abort
from gameday.run.connections import Opened, Servers
from gameday.run.node_changes import NodeEvents, NodeView, changes, view_before, view_of
from gameday.run.pod_states import PodStates
from gameday.run.season_member import SeasonMember
from gameday.values.nodes import NodeSnapshot, Taint, Target
from gameday.values.results import Cleanliness, Hop, Step

T = TypeVar("T")
# An entry expires this long after its fault's own deadline: the agent, who is first, must have had its chance.
EXPIRY_MARGIN = timedelta(seconds=30)
# A watch that its server closed is open again within one back-off; one that is down for longer shows an old state.
_MAY_BE_DOWN_S = 5.0
_EVENTS_NAMESPACE = "default"
# Our controller takes its reason off a node one or two requests after the taint is gone.
_TIDIED_WITHIN_S = 5.0


class LogTail(Protocol):
    """What a step starts before the fault and reads after it."""

    def note(self) -> None: ...

    def stop(self) -> None: ...


class Run:
    """One game-day from its first event to its last."""

    def __init__(
        self,
        id: str,
        folder: Path,
        loaded: LoadedPlan,
        profile: ClusterProfile,
        journal: Journal,
        member: SeasonMember | None = None,
    ) -> None:
        self.id = id
        self.member = member
        self.folder = folder
        self.loaded = loaded
        self.profile = profile
        self.journal = journal
        self.abort = Abort()
        self.started = datetime.now(UTC)
        self.began_s = seconds_awake_or_not()
        self.cpu_at_start_s = time.process_time()
        self.random = random.Random(loaded.plan.targets.seed)  # noqa: S311 - a stated, repeatable choice
        self.targets: tuple[Target, ...] = ()
        self.step = Step.BASELINE
        self.opened = Opened()
        self.nodes: dict[str, Follower] = {}
        self.node_pods: dict[str, Follower] = {}
        self.pod_states = PodStates()
        self.node_events: dict[str, Follower] = {}
        self.dirty_nodes: dict[str, str] = {}
        self.before: dict[str, NodeSnapshot] = {}
        self.ran_before: dict[str, list[GpuPod]] = {}
        self._changing = threading.Lock()
        self._taints: dict[str, set[Taint]] = {}
        self._views: dict[str, NodeView] = {}
        self.hops: set[tuple[Hop, str]] = set()
        self.restored: set[str] = set()
        self.not_repaired: dict[str, str] = {}
        self.cordoned: set[str] = set()
        self.log_tails: dict[str, LogTail] = {}
        self.alerts: dict[str, AlertSeen] = {}

    @property
    def plan(self) -> Plan:
        return self.loaded.plan

    @property
    def servers(self) -> Servers:
        assert self.opened.servers is not None
        return self.opened.servers

    @property
    def leases(self) -> Leases:
        assert self.opened.leases is not None
        return self.opened.leases

    @property
    def pods(self) -> PodFollower:
        """The run's own."""
        assert self.opened.pods is not None
        return self.opened.pods

    @property
    def ledger(self) -> Ledger:
        assert self.opened.ledger is not None
        return self.opened.ledger

    @property
    def kubernetes(self) -> Kubernetes:
        return self.servers.kubernetes

    @property
    def quarantine_keys(self) -> tuple[str, ...]:
        """Keys of the taints that may come because of this run: the plan's, and those the cluster's detectors use."""
        expected = (taint.key for taint in self.plan.expect.taints)
        return tuple(dict.fromkeys((*expected, *self.profile.quarantine_taint_keys)))

    @property
    def probe(self) -> GpuPodTemplate:
        """What our GPU pods that go through the scheduler are; a taint that the run waits for keeps them off."""
        tolerates = tuple(key for key in self.profile.ordinary_taint_keys if key not in self.quarantine_keys)
        return GpuPodTemplate(self.profile.canary_image, self.profile.canary_priority_class, tolerates)

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

    def marker(self, number: int) -> str:
        """What the line in the kernel log of the target of this number ends with: the run begins there."""
        return f"{self.id}-{number}"

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
        expires, ahead = datetime.now(UTC) + lasts + EXPIRY_MARGIN, self.ledger.intended(id, undo)
        entry = self.ledger.intend(id=id, act=act, node=node, undo=undo, expires=expires, with_next=with_next)
        if ahead is None:
            about = {"object": entry.object, "node": node, "expires": entry.expires}
            self.note(IntentRecorded(intent=id, act=act, undo=undo.kind, **about))
        # Asleep for long, say: whoever holds the lease now has reaped this very intent.
        self.check_still_ours()
        return entry

    def check_still_ours(self) -> None:
        """Raise AbortedError where somebody asked the run to stop, or where another may hold the cluster by now."""
        if self.abort.requested is None and self.opened.leases:
            try:
                self.opened.leases.check()
            except LeaseLostError as error:
                self.abort.request("guard", str(error))
        self.abort.check()

    def undo(self, entry: Entry) -> Cleanliness:
        """Undo one entry, verify it, and write down what was found; never raises for a cluster's sake."""
        known = self.nodes[entry.node].named(entry.node) if entry.node in self.nodes else None
        done = undo_entry(
            self.kubernetes, entry, self.id, self.pods, known, ledger=self.ledger, after_signal=self.abort.by_operator
        )
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
        """Watch the targets, the pods on them and the Events about them from now on, so that all is dated.

        Nodes that were looked at and not chosen are followed no more. Raises AdapterError when a watch does not come
        up, at once where the server refuses it.
        """
        self.stop_following(keep={seen.node for seen in chosen})
        for seen in chosen:
            self.before[seen.node] = seen
            self.look_at(seen.node)
            self.look_at_pods(seen.node)
            # What came since the node was first looked at was nobody's news then.
            for now in self.nodes[seen.node].objects():
                self._node_changed(ADDED, now)
            for pod in self.node_pods[seen.node].objects():
                self.pod_states.on_target(ADDED, pod)
            self._follow_events(seen.node)

    def look_at(self, node: str) -> NodeSnapshot | None:
        """Follow a node from now on; how it is now, None where there is none. Raises AdapterError."""
        if node not in self.nodes:
            core = self.kubernetes.core
            follower = Follower(core.list_node, self._node_changed, field_selector=f"metadata.name={node}")
            self.nodes[node] = follower.__enter__()
        self.nodes[node].require_synced()
        return self.node_now(node)

    def look_at_pods(self, node: str) -> list[GpuPod]:
        """Follow the pods on a node from now on; those that hold GPUs now. Raises AdapterError.

        The run's own are followed already (`pods`), and change more than all the others.
        """
        if node not in self.node_pods:
            core = self.kubernetes.core
            selection = {"field_selector": f"spec.nodeName={node}", "label_selector": f"{RUN_LABEL}!={self.id}"}
            follower = Follower(core.list_pod_for_all_namespaces, self._pod_changed, **selection)
            self.node_pods[node] = follower.__enter__()
        self.node_pods[node].require_synced()
        return self.gpu_pods_on(node)

    def blind_about(self, node: str) -> str:
        """Why what the watches of a target last showed may be old; empty where they are up."""
        followers = [self.nodes[node], self.node_pods[node]] if node in self.node_pods else []
        return "; ".join(filter(None, (one.trouble(_MAY_BE_DOWN_S) for one in followers)))

    def stop_following(self, keep: Collection[str] = ()) -> None:
        """End the watches of all nodes but those to keep."""
        for followers in (self.nodes, self.node_pods, self.node_events):
            for node in followers.keys() - set(keep):
                followers.pop(node).stop()

    def _pod_changed(self, kind: str, pod: Any) -> None:
        """Called in the watch's thread."""
        if pod.spec.node_name in self.before:
            self.pod_states.on_target(kind, pod)

    def _follow_events(self, node: str) -> None:
        """Events are one signal among others: where they may not be read, the run goes on and says so."""
        follower = self.node_events[node] = self._events_about(node).__enter__()
        try:
            follower.require_synced()
        except AdapterError as error:
            self.node_events.pop(node).stop()
            self.note(SignalUnwatched(node=node, signal="events", why=str(error)))

    def _events_about(self, node: str) -> Follower:
        """Events about nodes, which have no namespace, are in `default`."""
        known = NodeEvents(node)

        def changed(kind: str, event: Any) -> None:
            if not follower.wait_synced(0):
                known.known(event)
            elif kind != DELETED and (seen := known.news(event)):
                self.note(seen)

        about = f"involvedObject.kind=Node,involvedObject.name={node}"
        core = self.kubernetes.core
        follower = Follower(core.list_namespaced_event, changed, namespace=_EVENTS_NAMESPACE, field_selector=about)
        return follower

    def gpu_pods_on(self, node: str) -> list[GpuPod]:
        """Pods that hold GPUs of the node now, as the watches last saw them; those that have ended hold none."""
        found = [gpu_pod(pod) for pod in self.node_pods[node].objects()]
        if self.opened.pods:
            found += self.opened.pods.gpu_pods_on(node)
        return [pod for pod in found if pod.holds_gpu and pod.phase not in ("Succeeded", "Failed")]

    def _node_changed(self, kind: str, node: Any) -> None:
        """Note every taint, condition, label, cordon and GPU that comes or goes; called in the watch's thread."""
        with self._changing:
            self._note_changes(node)

    def _note_changes(self, node: Any) -> None:
        name, now = node.metadata.name, set(snapshot(node).taints)
        if name not in self.before:
            return
        decided = decided_at(node)
        if decided and self.step is not Step.BASELINE:
            self.hop(Hop.DECIDED, name, decided, f"annotation {REASON_ANNOTATION}")
        for taint in now ^ self._taints.setdefault(name, set(self.before[name].taints)):
            self._note_taint(name, taint, present=taint in now, manager=taint_manager(node))
        self._taints[name] = now
        view, before = view_of(node), self._views.setdefault(name, view_before(self.before[name]))
        for change in changes(name, before, view, datetime.now(UTC)):
            self.note(change)
            if isinstance(change, CordonSeen) and change.cordoned:
                self._note_cordon(name, change.at)
        self._views[name] = view

    def _note_cordon(self, node: str, at: datetime) -> None:
        """The detector's where the plan waits for one; one of nobody here is the on-call's, or an upgrade's.

        That a negative control's node stays schedulable is judged. A cordon that comes during the baseline is a
        refusal, by whoever looks at the targets before the fault.
        """
        expect = self.plan.expect
        if expect.cordoned and self.step in (Step.INJECT, Step.AWAIT_ALERT, Step.VERIFY_TAINT):
            self.hop(Hop.TAINTED, node, at, "watch of the node; cordoned")
        foreign = expect.cordoned is None and expect.stays_schedulable_for is None and node not in self.cordoned
        if foreign and self.step is not Step.BASELINE:
            self.abort.request("guard", f"the target {node} was cordoned by somebody else")

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
        """Record every target, read anew, once others had time to tidy up after the quarantine was lifted.

        One that cannot be read is a problem, not an end.
        """
        for target in self.targets:
            self._others_tidied(target.node)
            try:
                self.note(NodeSeen(phase="after", snapshot=snapshot(self.kubernetes.node(target.node))))
            except AdapterError as error:
                self.problem(f"node {target.node} could not be read: {error}")

    def _others_tidied(self, node: str) -> None:
        """Wait for the detector's reason and the cordon's taint to go from a node that we returned to work; one kept
        in quarantine keeps both."""
        if node not in self.restored:
            return
        deadline = time.monotonic() + _TIDIED_WITHIN_S
        follower = self.nodes[node]
        with follower.changed:
            while (now := self.node_now(node)) and not self._tidy(now):
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                follower.changed.wait(left)

    def _tidy(self, now: NodeSnapshot) -> bool:
        expect, before = self.plan.expect, self.before[now.node].labels
        keys = {label.key for label in expect.labels} - set(expect.labels_left)
        labels_back = all(now.labels.get(key) == before.get(key) for key in keys)
        return labels_back and REASON_ANNOTATION not in now.annotations and not now.lingering_cordon

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
