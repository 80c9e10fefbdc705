"""The scheduler: bind pending pods to nodes, one decision at a time, in order of priority.

Decisions are synchronous over local state and take effect there at once; the bindings are written concurrently later.
A pod that fits nowhere waits until a node or a reservation changes, without polling. There is no preemption, pod
(anti-)affinity or topology spread: pods that ask for those are placed as if they did not.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from dataclasses import dataclass, field

from kubesim.client import ApiClient, Object, Reflector, key_of
from kubesim.controllers.conditions import condition, write_condition
from kubesim.controllers.events import WARNING, EventRecorder
from kubesim.controllers.placement import ClusterUsage, Demand
from kubesim.controllers.pods import is_terminal, pod_path
from kubesim.controllers.requests import pod_requests
from kubesim.errors import ApiError
from kubesim.unsimulated import sentence

log = logging.getLogger(__name__)

SCHEDULER_NAME = "default-scheduler"
# kube-scheduler's podInitialBackoffSeconds and podMaxBackoffSeconds.
FIRST_BACKOFF_S, LAST_BACKOFF_S = 1.0, 10.0
MAX_PARALLEL_BINDINGS = 16
DECISIONS_PER_SLICE = 50


@dataclass
class Pending:
    """A pod that waits for a node."""

    pod: Object
    demand: Demand
    attempts: int = 0
    not_before: float = 0.0  # monotonic seconds
    parked: bool = field(default=False)  # fits nowhere until something changes


def is_pending(pod: Object) -> bool:
    """Return True if the pod is ours to place now."""
    spec = pod["spec"]
    return not (
        spec.get("nodeName")
        or spec.get("schedulingGates")
        or pod["metadata"].get("deletionTimestamp")
        or is_terminal(pod)
        or (spec.get("schedulerName") or SCHEDULER_NAME) != SCHEDULER_NAME
    )


def _would_preempt(spec: Object) -> bool:
    """Return True if kube-scheduler would look for pods of a lower priority to delete for this one."""
    return int(spec.get("priority") or 0) > 0 and spec.get("preemptionPolicy") != "Never"


class Scheduler:
    """Places pods through `api`; shared reflectors tell it about pods and nodes."""

    def __init__(self, api: ApiClient, events: EventRecorder, pods: Reflector, nodes: Reflector) -> None:
        self._api = api
        self._events = events
        self._reflectors = (pods, nodes)
        self._rooms = ClusterUsage()
        self._pending: dict[str, Pending] = {}
        self._active: list[tuple[int, int, str]] = []  # (-priority, order of arrival, pod uid)
        self._order = 0
        self._wake = asyncio.Event()
        self._bindings = asyncio.Semaphore(MAX_PARALLEL_BINDINGS)
        pods.on(self._pod_seen, lambda _, pod: self._pod_seen(pod), self._pod_gone)
        nodes.on(self._node_seen, lambda _, node: self._node_seen(node), self._node_gone)

    async def run(self) -> None:
        for reflector in self._reflectors:
            await reflector.synced.wait()
        async with asyncio.TaskGroup() as writes:
            while True:
                await self._wait()
                self._wake.clear()
                for _ in range(DECISIONS_PER_SLICE):
                    if not self._active:
                        break
                    self._place(heapq.heappop(self._active)[2], writes)
                else:
                    self._wake.set()
                    await asyncio.sleep(0)

    async def _wait(self) -> None:
        """Wait until a pod is active, or the back-off of the next one ends."""
        while not self._wake.is_set():
            due = [p.not_before for p in self._pending.values() if p.not_before and not p.parked]
            timeout_s = max(0.0, min(due) - time.monotonic()) if due else None
            try:
                await asyncio.wait_for(self._wake.wait(), timeout_s)
            except TimeoutError:
                self._activate_due()

    def _activate_due(self) -> None:
        now = time.monotonic()
        for uid, pending in self._pending.items():
            if pending.not_before and not pending.parked and pending.not_before <= now:
                pending.not_before = 0.0
                self._activate(uid, pending)

    def _activate(self, uid: str, pending: Pending) -> None:
        self._order += 1
        heapq.heappush(self._active, (-int(pending.pod["spec"].get("priority") or 0), self._order, uid))
        self._wake.set()

    # Events of the watches

    def _pod_seen(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        node = pod["spec"].get("nodeName")
        if node and not is_terminal(pod):
            self._pending.pop(uid, None)
            self._rooms.hold(uid, node, pod_requests(pod["spec"]))
        elif is_pending(pod):
            pending = self._pending.get(uid)
            if pending is not None:
                self._changed(pending, pod)
            elif not self._rooms.is_reserved(uid):
                self._pending[uid] = Pending(pod, Demand(pod["spec"]))
                self._activate(uid, self._pending[uid])
        else:
            self._pod_gone(pod)

    def _changed(self, pending: Pending, pod: Object) -> None:
        respecified = pending.pod["spec"] != pod["spec"]
        pending.pod = pod
        if respecified:  # tolerations may be added to a waiting pod
            pending.demand = Demand(pod["spec"])
            self._unpark()

    def _pod_gone(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        self._pending.pop(uid, None)
        if self._rooms.release(uid):
            self._unpark()

    def _node_seen(self, node: Object) -> None:
        if self._rooms.set_node(node):
            self._unpark()

    def _node_gone(self, node: Object) -> None:
        self._rooms.remove_node(node["metadata"]["name"])
        self._unpark()

    def _unpark(self) -> None:
        """Make parked pods due when their back-off ends, because room may have appeared."""
        parked = [pending for pending in self._pending.values() if pending.parked]
        for pending in parked:
            pending.parked = False
        if parked:
            self._activate_due()
            self._wake.set()

    # Deciding

    def _place(self, uid: str, writes: asyncio.TaskGroup) -> None:
        pending = self._pending.get(uid)
        if pending is None:
            return
        name, why_not = self._rooms.choose(pending.demand)
        if name is None:
            self._back_off(pending, parked=True)
            if _would_preempt(pending.pod["spec"]):
                why_not = f"{why_not.rstrip('.')}. {sentence('Preemption')}."
            self._events.record(pending.pod, "Pod", "v1", "FailedScheduling", why_not, WARNING)
            reported = condition(pending.pod, "PodScheduled")
            if reported is None or reported.get("message") != why_not:
                writes.create_task(self._report(pending.pod, why_not))
            return
        del self._pending[uid]
        self._rooms.hold(uid, name, pending.demand.requests)
        writes.create_task(self._bind(pending, name))

    def _back_off(self, pending: Pending, *, parked: bool) -> None:
        pending.attempts += 1
        pause_s = min(FIRST_BACKOFF_S * 2 ** (pending.attempts - 1), LAST_BACKOFF_S)
        pending.not_before = time.monotonic() + pause_s
        pending.parked = parked

    async def _bind(self, pending: Pending, node: str) -> None:
        meta = pending.pod["metadata"]
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            async with self._bindings:
                await self._api.post(f"{pod_path(pending.pod)}/binding", body)
        except ApiError as error:
            self._bind_failed(pending, node, error)
        else:
            message = f"Successfully assigned {key_of(pending.pod)} to {node}"
            self._events.record(pending.pod, "Pod", "v1", "Scheduled", message)

    def _bind_failed(self, pending: Pending, node: str, error: ApiError) -> None:
        uid = pending.pod["metadata"]["uid"]
        self._rooms.release(uid)
        self._unpark()
        current = self._reflectors[0].store.get(key_of(pending.pod))
        if current is None or current["metadata"]["uid"] != uid or error.not_found:
            return
        if current["spec"].get("nodeName"):
            self._pod_seen(current)
            return
        log.warning("binding %s to %s: %s", key_of(pending.pod), node, error)
        self._pending[uid] = pending
        self._back_off(pending, parked=False)
        self._wake.set()

    async def _report(self, pod: Object, message: str) -> None:
        new_condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        try:
            async with self._bindings:
                await write_condition(self._api, pod_path(pod), pod, new_condition)
        except ApiError as error:
            log.debug("%s not reported as unschedulable: %s", key_of(pod), error)
