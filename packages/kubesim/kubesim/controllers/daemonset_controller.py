"""Runs DaemonSets: watches them, their pods and the nodes, and carries out what `daemonsets.next_step` decides."""

from __future__ import annotations

import asyncio

from kubesim.client import ApiClient, Object, Reflector, key_of
from kubesim.controllers.daemonsets import DaemonStep, next_step, pod_for
from kubesim.controllers.events import NORMAL, WARNING, EventRecorder
from kubesim.controllers.pods import PodIndex, is_terminating, owner_of, pod_path
from kubesim.controllers.taints import node_taints
from kubesim.controllers.workqueue import WorkQueue
from kubesim.controllers.writes import Expectations, for_each

# Changes come in bursts (a thousand nodes register, a thousand pods start): look once per burst, since one look reads
# all nodes.
NODE_CHANGE_PAUSE_S = 0.2
POD_CHANGE_PAUSE_S = 0.1
# Pause before a failed daemon pod is replaced. Upstream begins with 1 s and doubles it; ours stays the same.
FAILED_POD_PAUSE_S = 1.0


class DaemonSetController:
    """Reconciles one DaemonSet at a time."""

    def __init__(
        self,
        api: ApiClient,
        events: EventRecorder,
        daemonsets: Reflector,
        pods: Reflector,
        index: PodIndex,
        nodes: Reflector,
    ) -> None:
        self._api = api
        self._events = events
        self._daemonsets = daemonsets
        self._pods = pods
        self._index = index
        self._nodes = nodes
        self._expected = Expectations()
        self._queue = WorkQueue("daemonset", self._reconcile)
        daemonsets.on(self._seen, lambda _, daemonset: self._seen(daemonset), self._seen)
        pods.on(self._pod_seen, lambda _, pod: self._pod_seen(pod), self._pod_seen)
        nodes.on(self._node_seen, self._node_changed, self._node_seen)

    async def run(self) -> None:
        await asyncio.gather(*(r.synced.wait() for r in (self._daemonsets, self._pods, self._nodes)))
        await self._queue.run()

    def _seen(self, daemonset: Object) -> None:
        self._queue.add(key_of(daemonset))

    def _pod_seen(self, pod: Object) -> None:
        owner = owner_of(pod)
        if owner is not None and owner["kind"] == "DaemonSet":
            self._expected.arrived(owner["uid"], pod["metadata"]["uid"])
            self._queue.add_after(f"{pod['metadata']['namespace']}/{owner['name']}", POD_CHANGE_PAUSE_S)

    def _node_seen(self, _: Object) -> None:
        for key in self._daemonsets.store:
            self._queue.add_after(key, NODE_CHANGE_PAUSE_S)

    def _node_changed(self, old: Object, new: Object) -> None:
        if node_taints(old) != node_taints(new) or old["metadata"].get("labels") != new["metadata"].get("labels"):
            self._node_seen(new)

    async def _reconcile(self, key: str) -> None:
        daemonset = self._daemonsets.store.get(key)
        if daemonset is None or is_terminating(daemonset):
            return
        uid = daemonset["metadata"]["uid"]
        pods = self._index.owned_by(uid)
        if wait_s := self._expected.settle(uid, {pod["metadata"]["uid"] for pod in pods}):
            self._queue.add_after(key, wait_s)
            return
        step = next_step(daemonset, pods, list(self._nodes.store.values()))
        await self._carry_out(daemonset, step)

    async def _carry_out(self, daemonset: Object, step: DaemonStep) -> None:
        if step.status != daemonset.get("status"):
            await self._api.put(f"{daemonset_path(daemonset)}/status", {**daemonset, "status": step.status})
        if step.failed:
            await asyncio.sleep(FAILED_POD_PAUSE_S)
        for pod in step.failed:
            where = f"{key_of(pod)} on node {pod['spec'].get('nodeName')}"
            self._record(daemonset, "FailedDaemonPod", f"Found failed daemon pod {where}, will try to kill it", WARNING)
        await for_each([*step.failed, *step.delete], lambda pod: self._delete(daemonset, pod))
        new = [pod_for(daemonset, node) for node in step.create_on]
        await for_each(new, lambda pod: self._create(daemonset, pod))

    async def _create(self, daemonset: Object, pod: Object) -> None:
        created = await self._api.post(f"/api/v1/namespaces/{daemonset['metadata']['namespace']}/pods", pod)
        if key_of(created) not in self._pods.store:
            self._expected.expect(daemonset["metadata"]["uid"], created["metadata"]["uid"])
        self._record(daemonset, "SuccessfulCreate", f"Created pod: {created['metadata']['name']}")

    async def _delete(self, daemonset: Object, pod: Object) -> None:
        await self._api.delete(pod_path(pod))
        self._record(daemonset, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")

    def _record(self, daemonset: Object, reason: str, message: str, level: str = NORMAL) -> None:
        self._events.record(daemonset, "DaemonSet", "apps/v1", reason, message, level)


def daemonset_path(daemonset: Object) -> str:
    meta = daemonset["metadata"]
    return f"/apis/apps/v1/namespaces/{meta['namespace']}/daemonsets/{meta['name']}"
