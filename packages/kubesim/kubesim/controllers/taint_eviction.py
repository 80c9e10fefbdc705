"""Taint eviction: delete pods that do not tolerate a NoExecute taint of their node."""

from __future__ import annotations

import asyncio
from datetime import datetime

from kubesim.client import ApiClient, Object, Reflector, key_of
from kubesim.clock import now_utc
from kubesim.controllers.conditions import write_condition
from kubesim.controllers.events import EventRecorder
from kubesim.controllers.pods import PodIndex, is_terminating, pod_path
from kubesim.controllers.taints import NO_EXECUTE, eviction_time, node_taints
from kubesim.controllers.workqueue import WorkQueue


def no_execute(node: Object) -> list[Object]:
    return [taint for taint in node_taints(node) if taint["effect"] == NO_EXECUTE]


class TaintEviction:
    """Deletes pods when their toleration of a NoExecute taint ends, unless the taint goes before."""

    def __init__(
        self, api: ApiClient, events: EventRecorder, nodes: Reflector, pods: Reflector, index: PodIndex
    ) -> None:
        self._api = api
        self._events = events
        self._nodes = nodes
        self._pods = pods
        self._index = index
        self._seen: dict[str, datetime] = {}  # node name → when it was first noticed to have NoExecute taints
        self._queue = WorkQueue("taint-eviction", self._reconcile)
        nodes.on(self._node_seen, self._node_changed, self._node_gone)
        pods.on(self._pod_seen, self._pod_changed)

    async def run(self) -> None:
        await asyncio.gather(self._nodes.synced.wait(), self._pods.synced.wait())
        await self._queue.run()

    def _node_seen(self, node: Object) -> None:
        name = node["metadata"]["name"]
        if not no_execute(node):
            self._seen.pop(name, None)
            return
        self._seen.setdefault(name, now_utc())
        for pod in self._index.on_node(name):
            self._queue.add(key_of(pod))

    def _node_changed(self, old: Object, new: Object) -> None:
        if no_execute(old) != no_execute(new):
            self._node_seen(new)

    def _node_gone(self, node: Object) -> None:
        self._seen.pop(node["metadata"]["name"], None)

    def _pod_seen(self, pod: Object) -> None:
        if pod["spec"].get("nodeName") in self._seen:
            self._queue.add(key_of(pod))

    def _pod_changed(self, old: Object, new: Object) -> None:
        if old["spec"] != new["spec"]:  # bound, or tolerations added
            self._pod_seen(new)

    async def _reconcile(self, key: str) -> None:
        pod = self._pods.store.get(key)
        node = self._nodes.store.get(pod["spec"].get("nodeName") or "") if pod else None
        if pod is None or node is None or is_terminating(pod):
            return
        now = now_utc()
        end = eviction_time(pod, no_execute(node), self._seen.get(node["metadata"]["name"], now))
        if end is None:
            return
        if end > now:
            self._queue.add_at(key, end)
            return
        self._events.record(pod, "Pod", "v1", "TaintManagerEviction", f"Marking for deletion Pod {key}")
        new_condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
        }
        await write_condition(self._api, pod_path(pod), pod, new_condition)
        await self._api.delete(pod_path(pod), {"preconditions": {"uid": pod["metadata"]["uid"]}})
