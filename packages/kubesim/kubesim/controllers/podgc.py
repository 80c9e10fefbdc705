"""Pod garbage collection: end and delete pods that are bound to a node that no longer exists."""

from __future__ import annotations

import asyncio
import logging

from kubesim.client import ApiClient, Object, Reflector
from kubesim.controllers.conditions import write_condition
from kubesim.controllers.pods import PodIndex, is_terminal, pod_path
from kubesim.controllers.workqueue import WorkQueue
from kubesim.controllers.writes import for_each

log = logging.getLogger(__name__)


class PodGarbageCollector:
    """Deletes pods of nodes that have been gone for `quarantine_s`: a node may register again at once."""

    def __init__(self, api: ApiClient, nodes: Reflector, pods: Reflector, index: PodIndex, quarantine_s: float) -> None:
        self._api = api
        self._nodes = nodes
        self._pods = pods
        self._index = index
        self._quarantine_s = quarantine_s
        self._queue = WorkQueue("pod-gc", self._reconcile, workers=1)
        nodes.on(delete=lambda node: self._suspect(node["metadata"]["name"]))
        pods.on(self._pod_seen, lambda _, pod: self._pod_seen(pod))

    async def run(self) -> None:
        await asyncio.gather(self._nodes.synced.wait(), self._pods.synced.wait())
        await self._queue.run()

    def _pod_seen(self, pod: Object) -> None:
        node = pod["spec"].get("nodeName")
        if node and node not in self._nodes.store:
            self._suspect(node)

    def _suspect(self, node: str) -> None:
        self._queue.add_after(node, self._quarantine_s)

    async def _reconcile(self, node: str) -> None:
        if node not in self._nodes.store:
            await for_each(self._index.on_node(node), self._collect)

    async def _collect(self, pod: Object) -> None:
        log.info("pod %s: its node is gone", pod["metadata"]["name"])
        if not is_terminal(pod):
            new_condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists",
            }
            await write_condition(self._api, pod_path(pod), pod, new_condition, also={"phase": "Failed"})
        await self._api.delete(pod_path(pod), {"gracePeriodSeconds": 0})
