"""Watch the nodes that a run looks at: their state, their pods, and the Events about them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from gameday.cluster.gpu_pods import GpuPod, gpu_pod
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.list_watch import ADDED, DELETED
from gameday.cluster.manifests import RUN_LABEL
from gameday.cluster.nodes import decided_at, snapshot, taint_manager, taints_written_at
from gameday.cluster.pods import PodFollower
from gameday.cluster.watch import Follower
from gameday.errors import AdapterError
from gameday.history.events import CordonSeen, Event, KubernetesEventSeen, SignalUnwatched, TaintSeen
from gameday.run.node_changes import (
    MANAGED_FIELDS,
    NodeEvents,
    NodeView,
    Sight,
    changes,
    view_of_node,
    view_of_snapshot,
)
from gameday.run.pod_states import PodStates
from gameday.values.nodes import NodeSnapshot, Taint

# A watch that its server closed is open again within one back-off; if it is down for longer, its state is old.
_MAY_BE_DOWN_S = 5.0
_EVENTS_NAMESPACE = "default"


class NodeListener:
    """Receives the changes of targets, in the watch's thread. This base ignores them; a run's policy overrides it."""

    def on_decision(self, node: str, at: datetime) -> None:
        """Handle a detector's annotation that it made a decision about `node` at `at`."""

    def on_taint(self, seen: TaintSeen) -> None:
        """Handle a taint that was added or removed."""

    def on_cordon(self, seen: CordonSeen) -> None:
        """Handle a node that was cordoned or uncordoned."""

    def on_node(self, name: str, node: Any | None) -> None:
        """Handle any change of a node (V1Node); None: it was deleted."""

    def on_pods(self, node: str, pods: Sequence[Any]) -> None:
        """Handle a change of the pods (V1Pod) on a node, but for the run's own."""

    def on_event(self, seen: KubernetesEventSeen) -> None:
        """Handle a Kubernetes Event about a node."""


class NodeWatch:
    """The newest state of every node that a run looks at; the targets' changes go into the history."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        run_id: str,
        note: Callable[[Event], None],
        pod_states: PodStates | None = None,
        own_pods: PodFollower | None = None,
        listener: NodeListener | None = None,
    ) -> None:
        """Watch nothing yet.

        Args:
            kubernetes: The cluster.
            run_id: The run; its own pods are followed elsewhere.
            note: Writes an event into the history; called in the watches' threads.
            pod_states: Collects the states of the targets' pods.
            own_pods: The run's own pods; None if it has none.
            listener: Receives the targets' changes; `add_listener` adds others.
        """
        self._kubernetes = kubernetes
        self._run_id = run_id
        self._note = note
        self._own_pods = own_pods
        self._listeners = [listener] if listener else []
        self._nodes: dict[str, Follower] = {}
        self._pods: dict[str, Follower] = {}
        self._events: dict[str, Follower] = {}
        self._before: dict[str, NodeSnapshot] = {}
        self._taints: dict[str, set[Taint]] = {}
        self._views: dict[str, NodeView] = {}
        self._changing = threading.Lock()
        self.pod_states = pod_states or PodStates(kubernetes.clock)

    def add_listener(self, listener: NodeListener) -> None:
        """Send all further changes of the targets to one more listener."""
        self._listeners.append(listener)

    def look_at(self, node: str) -> NodeSnapshot | None:
        """Follow a node from now on.

        Returns:
            The node as it is now; None if there is none.

        Raises:
            AdapterError: The watch does not come up.
        """
        if node not in self._nodes:
            core = self._kubernetes.core
            follower = self._kubernetes.follow(
                core.list_node, self._node_changed, field_selector=f"metadata.name={node}"
            )
            self._nodes[node] = follower.__enter__()
        self._nodes[node].require_synced()
        return self.now(node)

    def look_at_pods(self, node: str) -> list[GpuPod]:
        """Follow the pods on a node from now on, without the run's own, which change more than all the others.

        Returns:
            The pods that now hold GPUs of the node, the run's own included.

        Raises:
            AdapterError: The watch does not come up.
        """
        if node not in self._pods:
            core = self._kubernetes.core
            selection = {"field_selector": f"spec.nodeName={node}", "label_selector": f"{RUN_LABEL}!={self._run_id}"}
            follower = self._kubernetes.follow(core.list_pod_for_all_namespaces, self._pod_changed, **selection)
            self._pods[node] = follower.__enter__()
        self._pods[node].require_synced()
        return self.gpu_pods_on(node)

    def follow_targets(self, chosen: Iterable[NodeSnapshot]) -> None:
        """Follow the targets, their pods and the Events about them, and note every change from now on.

        Nodes that were looked at but not chosen are no longer followed.

        Raises:
            AdapterError: A watch does not come up; immediately if the server refuses it.
        """
        chosen = tuple(chosen)
        self.stop(keep={seen.node for seen in chosen})
        for seen in chosen:
            self.follow_target(seen)

    def follow_target(self, seen: NodeSnapshot) -> None:
        """Follow one more target, and note every change from `seen` on.

        Raises:
            AdapterError: A watch does not come up; immediately if the server refuses it.
        """
        self._before[seen.node] = seen
        self.look_at(seen.node)
        self.look_at_pods(seen.node)
        # Changes since the first look at the node have not been noted.
        for node in self._nodes[seen.node].objects():
            self._node_changed(ADDED, node)
        for pod in self._pods[seen.node].objects():
            self.pod_states.add_target_pod(ADDED, pod)
        self._follow_events(seen.node)

    def follows(self, node: str) -> bool:
        """Return True if the node and its pods are followed."""
        return node in self._nodes and node in self._pods

    def stop(self, keep: Collection[str] = ()) -> None:
        """End the watches of all nodes except those to keep."""
        for followers in (self._nodes, self._pods, self._events):
            for node in followers.keys() - set(keep):
                followers.pop(node).stop()

    def now(self, node: str) -> NodeSnapshot | None:
        """Return the node as its watch last saw it; None if it is not there, or not yet."""
        found = self.object(node)
        return snapshot(found) if found is not None else None

    def object(self, node: str) -> Any | None:
        """Return the V1Node as its watch last saw it; None if it is not followed or not there."""
        return self._nodes[node].named(node) if node in self._nodes else None

    def before(self, node: str) -> NodeSnapshot:
        """Return a target as it was when it was chosen."""
        return self._before[node]

    def pods_on(self, node: str) -> list[Any]:
        """Return the pods (V1Pod) on a followed node as last seen, without the run's own."""
        return self._pods[node].objects()

    def gpu_pods_on(self, node: str) -> list[GpuPod]:
        """Return the pods that hold GPUs of a followed node, as last seen; pods that have ended hold none."""
        found = [gpu_pod(pod) for pod in self._pods[node].objects()]
        if self._own_pods:
            found += self._own_pods.gpu_pods_on(node)
        return [pod for pod in found if pod.holds_gpu and pod.phase not in ("Succeeded", "Failed")]

    def free_gpus(self, node: str) -> int:
        """Return how many GPUs of a followed node are held by no pod, as last seen; may be negative."""
        now = self.now(node)
        return (now.allocatable_gpus or 0 if now else 0) - sum(pod.gpus for pod in self.gpu_pods_on(node))

    def trouble(self, node: str) -> str:
        """Return why the last state of a target and its pods may be old; empty if its watches are up."""
        followers = [self._nodes[node], self._pods[node]] if self.follows(node) else []
        return "; ".join(filter(None, (follower.trouble(_MAY_BE_DOWN_S) for follower in followers)))

    def wait_until(
        self, node: str, condition: Callable[[], bool], timeout_s: float, check_every_s: float | None = None
    ) -> bool:
        """Wait until `condition` holds; it is called again at every change of the node.

        Args:
            node: A followed node.
            condition: Called in this thread, under the watch's lock.
            timeout_s: The longest wait.
            check_every_s: Also call it after this many seconds without a change; None: only at changes.

        Returns:
            True once the condition holds, False after the timeout.
        """
        changed = self._nodes[node].changed
        return self._kubernetes.clock.wait_changed(changed, condition, timeout_s, check_every_s)

    def _pod_changed(self, kind: str, pod: Any) -> None:
        node = pod.spec.node_name
        if node in self._before:
            self.pod_states.add_target_pod(kind, pod)
            for listener in self._listeners if node in self._pods else ():
                listener.on_pods(node, self.pods_on(node))

    def _follow_events(self, node: str) -> None:
        """Follow the Events about a node. They are one signal among others, so the run goes on without them."""
        if node in self._events:
            return
        follower = self._events[node] = self._events_about(node).__enter__()
        try:
            follower.require_synced()
        except AdapterError as error:
            self._events.pop(node).stop()
            self._note(SignalUnwatched(node=node, signal="events", why=str(error)))

    def _events_about(self, node: str) -> Follower:
        """Return a watch of the Events about a node; nodes have no namespace, so they are in `default`."""
        events = NodeEvents(node)

        def changed(kind: str, event: Any) -> None:
            if not follower.wait_synced(0):
                events.remember(event)
            elif kind != DELETED and (seen := events.new_event(event, self._kubernetes.clock.now())):
                self._note(seen)
                for listener in self._listeners:
                    listener.on_event(seen)

        about = f"involvedObject.kind=Node,involvedObject.name={node}"
        follower = self._kubernetes.follow(
            self._kubernetes.core.list_namespaced_event, changed, namespace=_EVENTS_NAMESPACE, field_selector=about
        )
        return follower

    def _node_changed(self, kind: str, node: Any) -> None:
        """Note every taint, condition, label, cordon and GPU of a target that comes or goes."""
        with self._changing:
            name = node.metadata.name
            if name not in self._before:
                return
            if decided := decided_at(node):
                for listener in self._listeners:
                    listener.on_decision(name, decided)
            sight = self._sight(name)
            self._note_taints(name, node, sight)
            self._note_view(name, node, sight)
            for listener in self._listeners:
                listener.on_node(name, None if kind == DELETED else node)

    def _sight(self, name: str) -> Sight:
        """Return the current look at a node; its follower calls this before it keeps the node, too."""
        now, follower = self._kubernetes.clock.now(), self._nodes.get(name)
        return Sight(now, now - timedelta(seconds=follower.unseen_s if follower else 0.0))

    def _note_taints(self, name: str, node: Any, sight: Sight) -> None:
        now = set(snapshot(node).taints)
        manager, dated = taint_manager(node), sight.dated(taints_written_at(node), MANAGED_FIELDS)
        for taint in now ^ self._taints.setdefault(name, set(self._before[name].taints)):
            seen = TaintSeen(
                node=name, taint=taint, present=taint in now, manager=manager, at=dated.latest, dated=dated
            )
            self._note(seen)
            for listener in self._listeners:
                listener.on_taint(seen)
        self._taints[name] = now

    def _note_view(self, name: str, node: Any, sight: Sight) -> None:
        view, before = view_of_node(node), self._views.setdefault(name, view_of_snapshot(self._before[name]))
        for change in changes(name, before, view, sight):
            self._note(change)
            if isinstance(change, CordonSeen):
                for listener in self._listeners:
                    listener.on_cordon(change)
        self._views[name] = view
