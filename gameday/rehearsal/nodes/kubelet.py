"""A virtual kubelet: registers one node, keeps its Lease and status, and runs the pods bound to it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Callable
from pathlib import Path

from gameday.rehearsal.apiclient import MERGE_PATCH, STRATEGIC_MERGE_PATCH, ApiClient, ApiError, Object
from gameday.rehearsal.controllers.events import EventRecorder
from gameday.rehearsal.nodes.clock import now, rfc3339_micro
from gameday.rehearsal.nodes.containers import ContainerProcess
from gameday.rehearsal.nodes.devices import GpuDevices, GpuHolder
from gameday.rehearsal.nodes.machine import KUBELET, Machine
from gameday.rehearsal.nodes.node_object import Conditions, NodeFacts, labels, machine_status, node_object
from gameday.rehearsal.nodes.pod import PodRunner

log = logging.getLogger(__name__)

LEASE_DURATION_S = 40  # kubelet's nodeLeaseDurationSeconds
LEASE_RENEW_S = 10.0  # a quarter of it
STATUS_EVERY_S = 60.0
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_REGISTER_BACKOFF_S = (0.2, 5.0)
_LAST_WORD_WITHIN_S = 1.0
_GATE_POLL_S = 0.2
_SHUTTING_DOWN = "node is shutting down"  # kubelet's own message (nodeshutdown)


class Kubelet:
    """`run` after `register`; the machine it runs on tells it of power and GPUs (MachineListener)."""

    def __init__(
        self,
        machine: Machine,
        api: ApiClient,
        events: EventRecorder,
        *,
        port: int,
        state_dir: Path,
        label: Callable[[int, GpuHolder | None], None],
    ) -> None:
        self.machine = machine
        self.api = api
        self.events = events
        self.state_dir = state_dir
        self.environment = {"GAMEDAY_VIRTUAL_HOST": f"http://127.0.0.1:{port}/hosts/{machine.name}"}
        self.devices = GpuDevices(len(machine.gpus), machine.gpu_serves, label)
        self.pods: dict[str, PodRunner] = {}
        self._facts = NodeFacts(machine.index, machine.name, len(machine.gpus), port)
        self._conditions = Conditions()
        self._uid = ""
        self._not_ready: str | None = None
        self._told: Object = {}  # the machine's status that the server has
        self._changed = asyncio.Event()
        self._addresses = itertools.count(2)
        machine.listener = self

    # Registration and heartbeats

    async def register(self) -> None:
        """Create the Node, or take over the one that is there; then tell its status. Tries until it succeeds."""
        pause_s = _REGISTER_BACKOFF_S[0]
        while True:
            try:
                node = await self._create_or_adopt()
                self._uid = node["metadata"]["uid"]
                await self._tell_status()
                return
            except ApiError as error:
                log.warning("node %s is not registered yet: %s", self._facts.name, error)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _REGISTER_BACKOFF_S[1])

    async def _create_or_adopt(self) -> Object:
        """Of an existing Node only our own labels are touched: spec and everybody else's labels stay."""
        try:
            return await self.api.post("/api/v1/nodes", node_object(self._facts))
        except ApiError as error:
            if not error.conflict:
                raise
        return await self.api.patch(self._path, {"metadata": {"labels": labels(self._facts)}}, MERGE_PATCH)

    async def run(self) -> None:
        """Lease and status until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_lease())
            group.create_task(self._keep_status())

    async def _keep_lease(self) -> None:
        await asyncio.sleep(random.uniform(0, 1))  # noqa: S311 - spreads the first ones
        first = True
        while True:
            await self.may_write()
            try:
                await self._renew_lease(create=first)
                first = False
            except ApiError as error:
                first = first or error.not_found
                log.info("lease of %s: %s", self._facts.name, error)
            await asyncio.sleep(LEASE_RENEW_S * random.uniform(0.9, 1.1))  # noqa: S311 - jitter

    async def _renew_lease(self, *, create: bool) -> None:
        spec = {
            "holderIdentity": self._facts.name,
            "leaseDurationSeconds": LEASE_DURATION_S,
            "renewTime": rfc3339_micro(now()),
        }
        if create:
            owner = {"apiVersion": "v1", "kind": "Node", "name": self._facts.name, "uid": self._uid}
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._facts.name, "ownerReferences": [owner]},
                "spec": spec,
            }
            try:
                await self.api.post(_LEASES, lease)
                return
            except ApiError as error:
                if not error.conflict:
                    raise
        await self.api.patch(f"{_LEASES}/{self._facts.name}", {"spec": spec}, MERGE_PATCH)

    async def _keep_status(self) -> None:
        wait_s = random.uniform(0, STATUS_EVERY_S)  # noqa: S311 - spreads the heartbeats over the minute
        while True:
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            await self.may_write()
            try:
                await self._tell_status()
                wait_s = STATUS_EVERY_S * random.uniform(0.95, 1.05)  # noqa: S311 - jitter
            except ApiError as error:
                log.info("status of %s: %s", self._facts.name, error)
                wait_s = 1.0
                if error.not_found:
                    await self.register()

    async def _tell_status(self) -> None:
        """Conditions always; the rest only where it changed. Raises ApiError."""
        machine = machine_status(self._facts, self.machine.boot_id, self.devices.allocatable)
        changed = {key: value for key, value in machine.items() if self._told.get(key) != value}
        status = {"conditions": self._conditions.document(self._not_ready), **changed}
        await self.api.patch(f"{self._path}/status", {"status": status}, STRATEGIC_MERGE_PATCH)
        self._told = machine

    @property
    def _path(self) -> str:
        return f"/api/v1/nodes/{self._facts.name}"

    async def may_write(self) -> None:
        """Returns while the machine is on and its kubelet service runs."""
        while not (self.machine.powered and self.machine.is_active(KUBELET)):
            await asyncio.sleep(_GATE_POLL_S)

    # The machine

    async def going_down(self) -> None:
        """Say so before the power goes, as a kubelet with graceful node shutdown does."""
        self._not_ready = _SHUTTING_DOWN
        try:
            async with asyncio.timeout(_LAST_WORD_WITHIN_S):
                await self._tell_status()
        except (ApiError, TimeoutError) as error:
            log.info("node %s goes down unannounced: %s", self._facts.name, error)

    def down(self) -> None:
        for pod in self.pods.values():
            pod.crash()

    def up(self) -> None:
        self._not_ready = None
        self._changed.set()
        node = {"metadata": {"name": self._facts.name, "uid": self._facts.name}}  # kubelet's events name it so
        message = f"Node {self._facts.name} has been rebooted, boot id: {self.machine.boot_id}"
        self.events.record(node, "Node", "v1", "Rebooted", message, "Warning")
        for pod in self.pods.values():
            pod.start()

    def gpus_changed(self) -> None:
        self._changed.set()

    # Pods

    def pod_seen(self, pod: Object) -> None:
        """A pod bound to this node is new or changed."""
        uid = pod["metadata"]["uid"]
        if runner := self.pods.get(uid):
            runner.update(pod)
            return
        try:
            self.pods[uid] = runner = PodRunner(pod, self)
        except OSError as error:
            log.error("pod %s/%s: no folder for it: %s", pod["metadata"]["namespace"], pod["metadata"]["name"], error)
            return
        if self.machine.powered:
            runner.start()

    def pod_gone(self, pod: Object) -> None:
        if runner := self.pods.pop(pod["metadata"]["uid"], None):
            runner.forget()

    def pod_ip(self) -> str:
        number = next(self._addresses) % 250 + 2
        return f"10.{64 + self._facts.index // 256}.{self._facts.index % 256}.{number}"

    def occupy(self, uid: str, container: str, process: ContainerProcess) -> list[int]:
        """Put a container's process on the GPUs it was given; returns them."""
        gpus = [gpu for gpu in self.devices.held_by(uid) if self._container_of(gpu) == container]
        for gpu in gpus:
            self.machine.gpu_processes.setdefault(gpu, {})[process.pid] = "python"
            self.machine.fleet.set_pod_load((self.machine.index, gpu), process.gpu_load)
        return gpus

    def vacate(self, gpus: list[int], process: ContainerProcess) -> None:
        for gpu in gpus:
            self.machine.gpu_processes.get(gpu, {}).pop(process.pid, None)
            self.machine.fleet.set_pod_load((self.machine.index, gpu), 0.0)

    def _container_of(self, gpu: int) -> str | None:
        holder = self.devices.holder(gpu)
        return holder.container if holder else None

    def stop(self) -> None:
        """The whole rehearsal ends: no process may outlive it."""
        for pod in self.pods.values():
            pod.crash()
