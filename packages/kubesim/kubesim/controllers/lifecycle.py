"""Node lifecycle: notice kubelets that fall silent, and turn node conditions and cordons into taints.

Only the taint keys listed here are added or removed, on the node version that the decision was made on, so no other
taint can be lost. Unlike upstream there is no limit by zone and no eviction rate limit: with few nodes, these would
hide the very failures that a test provokes.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime

from kubesim.client import ApiClient, Object, Reflector
from kubesim.clock import now_utc, rfc3339
from kubesim.controllers.conditions import condition, holds, write_condition
from kubesim.controllers.events import EventRecorder
from kubesim.controllers.pods import PodIndex, pod_path
from kubesim.controllers.taints import (
    NO_EXECUTE,
    NO_SCHEDULE,
    NOT_READY,
    UNREACHABLE,
    UNSCHEDULABLE,
    node_taints,
    with_own_taints,
)
from kubesim.controllers.workqueue import WorkQueue
from kubesim.controllers.writes import for_each
from kubesim.errors import ApiError

log = logging.getLogger(__name__)

# kube-controller-manager's --node-monitor-period; with a shorter grace, nodes are looked at more often.
MONITOR_PERIOD_S = 5.0
LOOKS_PER_GRACE = 10
# The conditions that kube-controller-manager overwrites when a kubelet falls silent, in its order.
KUBELET_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
CONDITION_TAINTS = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
OWN_KEYS = frozenset({NOT_READY, UNREACHABLE, UNSCHEDULABLE, *CONDITION_TAINTS.values()})


def wanted_taints(node: Object) -> list[Object]:
    """Return the lifecycle taints that a node should have, by its conditions and its cordon."""
    taints: list[Object] = []
    ready = condition(node, "Ready")
    if ready is None:
        # A node that never reported must not get work, but has nothing to evict either.
        taints.append({"key": NOT_READY, "effect": NO_SCHEDULE})
    elif ready["status"] != "True":
        key = NOT_READY if ready["status"] == "False" else UNREACHABLE
        taints += [{"key": key, "effect": NO_SCHEDULE}, {"key": key, "effect": NO_EXECUTE}]
    if (node.get("spec") or {}).get("unschedulable"):
        taints.append({"key": UNSCHEDULABLE, "effect": NO_SCHEDULE})
    taints += [{"key": key, "effect": NO_SCHEDULE} for kind, key in CONDITION_TAINTS.items() if holds(node, kind)]
    return taints


def silent_conditions(node: Object, now: datetime) -> list[Object]:
    """Return the node's conditions after its kubelet is given up: the kubelet's own all Unknown, others as they are."""
    conditions = [c for c in (node.get("status") or {}).get("conditions") or () if c["type"] not in KUBELET_CONDITIONS]
    for kind in KUBELET_CONDITIONS:
        old = condition(node, kind)
        conditions.append(
            {
                "type": kind,
                "status": "Unknown",
                "reason": "NodeStatusUnknown" if old else "NodeStatusNeverUpdated",
                "message": "Kubelet stopped posting node status." if old else "Kubelet never posted node status.",
                "lastHeartbeatTime": (old or {}).get("lastHeartbeatTime")
                or node["metadata"].get("creationTimestamp")
                or rfc3339(now),
                "lastTransitionTime": rfc3339(now),
            }
        )
    return conditions


class NodeLifecycle:
    """Watches nodes and their Leases. `grace_s`: silence after which a node's state is Unknown."""

    def __init__(
        self,
        api: ApiClient,
        events: EventRecorder,
        nodes: Reflector,
        leases: Reflector,
        index: PodIndex,
        grace_s: float,
    ) -> None:
        self._api = api
        self._events = events
        self._nodes = nodes
        self._leases = leases
        self._index = index
        self._grace_s = grace_s
        self._heard: dict[str, float] = {}  # node name → event-loop time of the last sign of life
        self._queue = WorkQueue("node-lifecycle", self._reconcile)
        nodes.on(self._node_added, self._node_changed, self._node_gone)
        leases.on(self._lease_seen, self._lease_changed)

    async def run(self) -> None:
        await asyncio.gather(self._nodes.synced.wait(), self._leases.synced.wait())
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run())
            group.create_task(self._monitor())

    # As upstream, only a *change* is a sign of life, so the clocks of nodes and controller need not agree.

    def _hear(self, name: str) -> None:
        self._heard[name] = asyncio.get_running_loop().time()

    def _lease_seen(self, lease: Object) -> None:
        self._hear(lease["metadata"]["name"])

    def _lease_changed(self, old: Object, new: Object) -> None:
        if (old.get("spec") or {}).get("renewTime") != (new.get("spec") or {}).get("renewTime"):
            self._lease_seen(new)

    def _node_added(self, node: Object) -> None:
        self._hear(node["metadata"]["name"])
        self._queue.add(node["metadata"]["name"])

    def _node_changed(self, old: Object, new: Object) -> None:
        before, after = condition(old, "Ready") or {}, condition(new, "Ready") or {}
        if before.get("lastHeartbeatTime") != after.get("lastHeartbeatTime"):
            self._hear(new["metadata"]["name"])
        if before.get("status") == "True" and after.get("status") != "True":
            message = f"Node {new['metadata']['name']} status is now: NodeNotReady"
            self._events.record(new, "Node", "v1", "NodeNotReady", message)
        self._queue.add(new["metadata"]["name"])

    def _node_gone(self, node: Object) -> None:
        self._heard.pop(node["metadata"]["name"], None)

    async def _monitor(self) -> None:
        while True:
            await asyncio.sleep(min(MONITOR_PERIOD_S, self._grace_s / LOOKS_PER_GRACE))
            # Silence while our own watch was broken says nothing about the nodes.
            since = self._leases.listening_since, self._nodes.listening_since
            if None in since:
                continue
            now, watched_since = asyncio.get_running_loop().time(), max(each or 0.0 for each in since)
            for name, node in list(self._nodes.store.items()):
                ready = condition(node, "Ready")
                silence_s = now - max(self._heard.get(name, now), watched_since)
                if silence_s > self._grace_s and (ready is None or ready["status"] != "Unknown"):
                    await self._give_up(node)

    async def _give_up(self, node: Object) -> None:
        name = node["metadata"]["name"]
        version = node["metadata"]["resourceVersion"]
        body = {
            "metadata": {"resourceVersion": version},
            "status": {"conditions": silent_conditions(node, now_utc())},
        }
        try:
            await self._api.patch(f"/api/v1/nodes/{name}/status", body)
            log.info("node %s is silent for %.0f s: its state is now Unknown", name, self._grace_s)
        except ApiError as error:
            # The node changed or the server is away: the next look decides again.
            log.debug("node %s not marked Unknown: %s", name, error)

    async def _reconcile(self, name: str) -> None:
        node = self._nodes.store.get(name)
        if node is None:
            return
        taints = with_own_taints(node_taints(node), wanted_taints(node), OWN_KEYS, now_utc())
        if taints is not None:
            version = node["metadata"]["resourceVersion"]
            body = {"metadata": {"resourceVersion": version}, "spec": {"taints": taints}}
            await self._api.patch(f"/api/v1/nodes/{name}", body)
        if not holds(node, "Ready"):
            await for_each([p for p in self._index.on_node(name) if holds(p, "Ready")], self._mark_pod_not_ready)

    async def _mark_pod_not_ready(self, pod: Object) -> None:
        new_condition = {**(condition(pod, "Ready") or {}), "type": "Ready", "status": "False"}
        await write_condition(self._api, pod_path(pod), pod, new_condition)
