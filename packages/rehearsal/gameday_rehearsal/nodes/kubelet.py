"""A virtual kubelet: registers one node, keeps its Lease and status, and runs the pods bound to it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Callable, Mapping
from pathlib import Path

from gameday.faults.component_pods import Component
from gameday.plan.rehearsal import DraXidEffect
from gameday_rehearsal.nodes.api_account import ApiAddress
from gameday_rehearsal.nodes.components import Sandbox
from gameday_rehearsal.nodes.containers import ContainerProcess
from gameday_rehearsal.nodes.devices import GpuDevices, GpuHolder
from gameday_rehearsal.nodes.dra import DraDriver
from gameday_rehearsal.nodes.gpu_operator import AWAY_AT_FIRST, GpuOperator, container_environment, operand_of
from gameday_rehearsal.nodes.kernel_log import KernelRecord
from gameday_rehearsal.nodes.lease import NodeLease
from gameday_rehearsal.nodes.machine import KUBELET, MachineListener
from gameday_rehearsal.nodes.node_machine import NodeMachine
from gameday_rehearsal.nodes.node_object import Conditions, NodeFacts, labels, machine_status, node_object
from gameday_rehearsal.nodes.numa import POLICY_ANNOTATION, SINGLE_NUMA_NODE
from gameday_rehearsal.nodes.pod import PodRunner
from gameday_rehearsal.nodes.topology import TopologyUpdater
from kubesim.client import MERGE_PATCH, STRATEGIC_MERGE_PATCH, ApiClient, Object
from kubesim.controllers.events import EventRecorder
from kubesim.errors import ApiError

log = logging.getLogger(__name__)

STATUS_EVERY_S = 300.0  # kubelet's nodeStatusReportFrequency: in between, the Lease shows that it is alive
STATUS_CHECK_S = 10.0  # kubelet's nodeStatusUpdateFrequency: within it, somebody else's change is overwritten
_STATUS_BACKOFF_S = (0.2, 5.0)
_LAST_WORD_WITHIN_S = 1.0
_GATE_POLL_S = 0.2
POD_RESOURCES_ANNOTATION, POD_RESOURCES_ELSEWHERE = "virtual-node.gameday.dev/pod-resources", "elsewhere"
"""A node's annotation, and its value for a kubelet with another --root-dir, so that pods do not find its socket of the
pod-resources API.
"""
_SHUTTING_DOWN = "node is shutting down"  # kubelet's own message (nodeshutdown)


class Kubelet(MachineListener):
    """A kubelet: `register`, then `run`; its machine reports power and GPUs to it (MachineListener)."""

    def __init__(
        self,
        machine: NodeMachine,
        api: ApiClient,
        events: EventRecorder,
        *,
        facts: NodeFacts,
        api_address: ApiAddress,
        host: Mapping[str, str],
        state_dir: Path,
        label: Callable[[int, GpuHolder | None], None],
        registering: asyncio.Semaphore,
        dra: DraXidEffect | None,
        topology_interval_s: float | None,
        lease_s: int,
        gpu_operator: GpuOperator = GpuOperator.NONE,
    ) -> None:
        """Prepare the kubelet.

        `api_address`: the API server as pods reach it; `host`: the variables by which agents reach the machine;
        `registering` bounds how many register at once; `dra`: effect of its DRA driver's taint for an Xid, None without
        such a driver; `topology_interval_s`: interval of its topology updater, None without one; `lease_s`: duration of
        its Lease; `gpu_operator`: how containers get its GPUs.
        """
        self.machine = machine
        self.api = api
        self.api_address = api_address
        self.events = events
        self.state_dir = state_dir
        self._host = host
        self.gpu_operator = gpu_operator
        self._operands: dict[int, Component | None] = {}  # of the running operator pods, by pid
        if gpu_operator is not GpuOperator.NONE:
            machine.set_away(AWAY_AT_FIRST)
        self.devices = GpuDevices(len(machine.gpus), self._offers, label)
        self.pods: dict[str, PodRunner] = {}
        self.dra = DraDriver(machine, api, self.may_write, dra) if dra and machine.gpus else None
        self.topology = (
            TopologyUpdater(facts.name, self.devices, api, self.may_write, topology_interval_s)
            if topology_interval_s and machine.gpus
            else None
        )
        self.registered = asyncio.Event()
        self._registering = registering
        self._to_register = True
        self._node_gone = False
        self._facts = facts
        self._conditions = Conditions()
        self._lease = NodeLease(api, facts.name, lease_s)
        self._uid = ""
        self._not_ready: str | None = None
        self._sent_status: Object = {}  # the machine's status as the server has it
        self._seen: Object = {}  # the Node as the watch last showed it
        self._check: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._addresses = itertools.count(2)
        machine.listeners.append(self)
        machine.components.sandboxes = self._sandboxes

    # Registration and heartbeats

    async def run(self) -> None:
        """Register, and keep Lease and status until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_status())
            await self.registered.wait()
            group.create_task(self._lease.keep(self.may_write_lease))
            if self.dra:
                group.create_task(self.dra.keep_published())
            if self.topology:
                group.create_task(self.topology.keep_written())

    async def _keep_status(self) -> None:
        """Register at every start of the kubelet; then write the status when it changes, and regularly."""
        pause_s = _STATUS_BACKOFF_S[0]
        while True:
            await self.may_write()
            self._changed.clear()
            # Spread out, so that nodes that registered together do not report together (kubelet also delays at random).
            wait_s = STATUS_EVERY_S * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
            try:
                if self._to_register:
                    await self._register()
                elif not self._node_gone:
                    await self._tell_status()
                pause_s = _STATUS_BACKOFF_S[0]
            except ApiError as error:
                if error.not_found and not self._to_register:
                    self._node_is_gone()
                else:
                    log.warning("node %s: %s", self._facts.name, error)
                    self._changed.set()
                    await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
                    pause_s = min(pause_s * 2, _STATUS_BACKOFF_S[1])
            await self._until_changed(wait_s)

    async def _until_changed(self, most_s: float) -> None:
        try:
            async with asyncio.timeout(most_s):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _register(self) -> None:
        """Create the Node, or take over an existing one, and write its status. Raises ApiError."""
        async with self._registering:
            machine = machine_status(self._facts, self.machine.boot_id, self.devices.allocatable)
            status = {**machine, "conditions": self._conditions.document(self._not_ready)}
            try:
                node = await self.api.post("/api/v1/nodes", node_object(self._facts, self.machine.booted_s, status))
                self._sent_status = machine
            except ApiError as error:
                if not error.conflict:
                    raise
                # Only our own labels are touched: spec and all other labels stay.
                own = labels(self._facts, self.machine.booted_s)
                node = await self.api.patch(self._path, {"metadata": {"labels": own}}, MERGE_PATCH)
                self._sent_status = {}
                await self._tell_status()
        self._uid = self._lease.node_uid = node["metadata"]["uid"]
        self._to_register = self._node_gone = False
        self.machine.set_in_cluster(present=True)
        if self.dra:
            self.dra.node_registered(self._uid)
        self.registered.set()

    async def _tell_status(self) -> None:
        """Send the conditions, and the rest only if it changed. Raises ApiError."""
        machine = machine_status(self._facts, self.machine.boot_id, self.devices.allocatable)
        changed = {key: value for key, value in machine.items() if self._sent_status.get(key) != value}
        status = {"conditions": self._conditions.document(self._not_ready), **changed}
        await self.api.patch(f"{self._path}/status", {"status": status}, STRATEGIC_MERGE_PATCH)
        self._sent_status = machine

    def node_seen(self, node: Object) -> None:
        """Take the Node as the server has it; conditions that somebody overwrote are soon corrected."""
        self._seen = node
        if self._check is None and self.registered.is_set() and not self._conditions.shown_by(node):
            after_s = random.uniform(0, STATUS_CHECK_S)  # noqa: S311 - a fleet's kubelets do not look all at once
            self._check = asyncio.get_running_loop().call_later(after_s, self._put_right)

    def _put_right(self) -> None:
        self._check = None
        if not self._conditions.shown_by(self._seen):  # still: our last write may not have been seen by then
            self._conditions.begin_again()
            self._changed.set()

    def node_deleted(self, node: Object) -> None:
        if node["metadata"]["uid"] == self._uid:
            self._node_is_gone()

    def _node_is_gone(self) -> None:
        """Stay away until restarted, as a kubelet does: a person who deletes a Node means it."""
        if not self._node_gone:
            log.warning("node %s was deleted; a reboot or a restart of its kubelet brings it back", self._facts.name)
        self._node_gone = True
        self.machine.set_in_cluster(present=False)

    async def may_write_lease(self) -> None:
        """Wait until the kubelet runs and its Node exists."""
        while True:
            await self.may_write()
            if not self._node_gone:
                return
            await asyncio.sleep(_GATE_POLL_S)

    @property
    def _path(self) -> str:
        return f"/api/v1/nodes/{self._facts.name}"

    async def may_write(self) -> None:
        """Wait until the machine is on and its kubelet service runs."""
        while not (self.machine.powered and self.machine.is_active(KUBELET)):
            await asyncio.sleep(_GATE_POLL_S)

    # The machine

    async def going_down(self) -> None:
        """Announce the shutdown before the power goes, like a kubelet with graceful node shutdown."""
        self._not_ready = _SHUTTING_DOWN
        try:
            async with asyncio.timeout(_LAST_WORD_WITHIN_S):
                await self._tell_status()
        except (ApiError, TimeoutError) as error:
            log.info("node %s goes down unannounced: %s", self._facts.name, error)

    def down(self) -> None:
        for pod in self.pods.values():
            pod.crash()

    def kubelet_started(self) -> None:
        self._to_register = True
        self._changed.set()

    def up(self) -> None:
        self._not_ready = None
        if self.dra:
            self.dra.restarted()
        self.kubelet_started()
        node = {"metadata": {"name": self._facts.name, "uid": self._uid}}
        message = f"Node {self._facts.name} has been rebooted, boot id: {self.machine.boot_id}"
        self.events.record(node, "Node", "v1", "Rebooted", message, "Warning")
        for pod in self.pods.values():
            pod.start()

    def gpus_changed(self) -> None:
        self._changed.set()
        if self.dra:
            self.dra.gpus_changed()
        for pod in self.pods.values():
            pod.devices_changed()

    def logged(self, record: KernelRecord) -> None:
        if self.dra and self.dra.logged(record):
            for pod in self.pods.values():
                pod.devices_changed()

    # Pods

    def pod_seen(self, pod: Object) -> None:
        """Take a pod bound to this node that is new or changed."""
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
            self.machine.components.forget(runner.uid)

    @property
    def aligns(self) -> bool:
        """True if the Topology Manager admits only what one NUMA node can serve."""
        if self.topology and self.topology.runs:
            return True
        return self._annotation(POLICY_ANNOTATION) == SINGLE_NUMA_NODE

    @property
    def has_pod_resources(self) -> bool:
        """True if the pod-resources API is where pods look for it."""
        return self._annotation(POD_RESOURCES_ANNOTATION) != POD_RESOURCES_ELSEWHERE

    def _annotation(self, key: str) -> str | None:
        """Return an annotation of the node, as last seen."""
        found: str | None = ((self._seen.get("metadata") or {}).get("annotations") or {}).get(key)
        return found

    def _sandboxes(self) -> list[Sandbox]:
        """Return the sandboxes of the running pods, as the container runtime has them."""
        return [Sandbox.of(runner.pod) for runner in self.pods.values() if runner.runs]

    def pod_ip(self) -> str:
        number = next(self._addresses) % 250 + 2
        return f"10.{64 + self._facts.index // 256}.{self._facts.index % 256}.{number}"

    def occupy(self, uid: str, container: str, process: ContainerProcess) -> list[int]:
        """Put a container's process on the GPUs that it was given, and return them."""
        gpus = [gpu for gpu in self.devices.held_by(uid) if self._container_of(gpu) == container]
        if gpus:
            self.machine.occupy(gpus, process.pid, "python", uid)
            self.machine.set_pod_load(gpus, process.gpu_load)
            process.compute_on(lambda: self.machine.worked(gpus))
        self._operand_runs(uid, process)
        return gpus

    def vacate(self, gpus: list[int], process: ContainerProcess) -> None:
        self.machine.vacate(process.pid)
        self.machine.set_pod_load(gpus, 0.0)
        if process.pid in self._operands:
            del self._operands[process.pid]
            self._operands_changed()

    def _operand_runs(self, uid: str, process: ContainerProcess) -> None:
        """Have the GPU operator's pods keep every GPU open while they run, as NVML's clients do."""
        if self.gpu_operator is GpuOperator.NONE or not (found := operand_of(self.pods[uid].pod)):
            return
        command, self._operands[process.pid] = found
        self.machine.occupy(self.machine.known_gpus(), process.pid, command, uid)
        self._operands_changed()

    def _operands_changed(self) -> None:
        self.machine.monitors = set(self._operands)
        self.machine.set_away(set(AWAY_AT_FIRST) - set(self._operands.values()))
        self._changed.set()  # what is allocatable goes and comes with the device plugin

    def _offers(self, gpu: int) -> bool:
        return self.machine.gpu_serves(gpu) and Component.DEVICE_PLUGIN not in self.machine.away

    def environment(self, uid: str, container: str) -> dict[str, str]:
        """Return where the agent reaches the host, and the variables that device plugin and runtime add for GPUs."""
        mine = [self.machine.gpus[gpu] for gpu in self.devices.held_by(uid) if self._container_of(gpu) == container]
        of_gpus = container_environment(self.gpu_operator, self.pods[uid].pod, container, mine)
        return {**self._host, **of_gpus}

    async def device_plugin_answers(self) -> None:
        """Return as soon as the device plugin's pod is not frozen."""
        await self.machine.components.until_thawed(Component.DEVICE_PLUGIN)

    def _container_of(self, gpu: int) -> str | None:
        holder = self.devices.holder(gpu)
        return holder.container if holder else None

    def stop(self) -> None:
        """End everything with the rehearsal: no process may outlive it."""
        for pod in self.pods.values():
            pod.crash()
