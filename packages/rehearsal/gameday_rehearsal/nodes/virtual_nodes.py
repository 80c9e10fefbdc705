"""All virtual nodes of this process: one GPU fleet, one watch of pods, one kubelet per node."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gameday.cluster.manifests import RUN_LABEL
from gameday.plan.rehearsal import DraXidEffect
from gameday_rehearsal.lease_duration import lease_duration_s
from gameday_rehearsal.nodes.api_account import ApiAddress
from gameday_rehearsal.nodes.dcgm import DcgmCache
from gameday_rehearsal.nodes.devices import GpuHolder
from gameday_rehearsal.nodes.dra import DRIVER, SLICES
from gameday_rehearsal.nodes.exporter_release import ExporterRelease
from gameday_rehearsal.nodes.exposition import Exposition, watched_by
from gameday_rehearsal.nodes.gpu_operator import GpuOperator
from gameday_rehearsal.nodes.gpus import BLOCKED_AIR, GpuFleet
from gameday_rehearsal.nodes.guests import Guests
from gameday_rehearsal.nodes.identity import gpu_identities
from gameday_rehearsal.nodes.kubelet import Kubelet
from gameday_rehearsal.nodes.logship import LogShipper
from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.node_object import CLIENT_INSTANCE_TYPE, INSTANCE_TYPE, INSTANCE_TYPE_LABEL, NodeFacts
from gameday_rehearsal.nodes.pod import PodRunner
from gameday_rehearsal.nodes.topology import DEFINITION, DEFINITIONS, is_served
from gameday_rehearsal.slow_gpus import SlowGpu
from kubesim.client import ApiClient, Object, Reflector
from kubesim.controllers.events import EventRecorder
from kubesim.errors import ApiError

log = logging.getLogger(__name__)

_REGISTER_AT_ONCE = 16
_ASK_AGAIN_S = 1.0
BEAT_EVERY_S = 60.0  # as deploy/dmesg-shipper
_LOG_STORE = b"gameday_rehearsal.logstore"


@dataclass(frozen=True)
class Settings:
    """The command line's settings.

    `boot_s`: seconds of a reboot. `log_store_pid`: the file with the log store's process id. `hold_outs`: number of the
    last nodes that are spares. `weakly_cooled`: the node with a poorly cooled last GPU. `slow_gpus`: GPUs that
    compute more slowly than their clocks say. `client_nodes`: number of further nodes without GPUs, for API clients.
    `dra`: a DRA driver publishes the GPUs, too. `lab_control`: control socket of the nodes' lab.
    `topology_interval_s`: interval of the nodes' topology updaters; None without updaters. `exporter`: the release of
    dcgm-exporter that the metrics follow. `gpu_operator`: how containers get GPUs.
    """

    nodes: int
    gpus: int
    prefix: str
    boot_s: float
    state_dir: Path
    log_store_pid: Path | None = None
    hold_outs: int = 0
    weakly_cooled: str | None = None
    slow_gpus: tuple[SlowGpu, ...] = ()
    client_nodes: int = 0
    dra: bool = False
    dra_xid_effect: DraXidEffect = DraXidEffect.NO_SCHEDULE
    lab_control: Path | None = None
    topology_interval_s: float | None = None
    exporter: ExporterRelease = ExporterRelease.CODED
    gpu_operator: GpuOperator = GpuOperator.NONE

    @property
    def names(self) -> list[str]:
        """Names of the GPU nodes."""
        return [f"{self.prefix}-{number}" for number in range(1, self.nodes + 1)]

    @property
    def client_names(self) -> list[str]:
        """Names of the nodes for API clients."""
        return [f"client-{number}" for number in range(1, self.client_nodes + 1)]


class VirtualNodes:
    """The machines exist from the start; `joined` puts them into a cluster."""

    def __init__(self, settings: Settings, shipper: LogShipper) -> None:
        names = settings.names
        self._settings = settings
        self.fleet = GpuFleet(names, settings.gpus)
        if settings.weakly_cooled:
            self.fleet.thermal_resistance[names.index(settings.weakly_cooled), -1] = BLOCKED_AIR
        for slow in settings.slow_gpus:
            self.fleet.compute_share[names.index(slow.node), slow.gpu] = slow.share
        self.cache = DcgmCache(self.fleet, watched=watched_by(settings.exporter))
        self.machines = {
            name: Machine(index, name, self.fleet, self.cache, shipper.ship, settings.boot_s)
            for index, name in enumerate(names)
        }
        for machine in self.machines.values():
            machine.hold_log_store = self._hold_log_store
        self.with_gpus = tuple(self.machines.values())
        self.machines |= _client_machines(settings)
        for machine in self.machines.values():
            machine.lab_control = settings.lab_control
        identities = [gpu_identities(name, settings.gpus) for name in names]
        self.exposition = Exposition(self.cache, names, identities, settings.exporter)
        self.kubelets: dict[str, Kubelet] = {}
        self.worked_on: set[str] = set()
        """Names of the nodes that have had a game-day's pod."""
        self.guests: Guests | None = None  # set if a guest watches

    @asynccontextmanager
    async def joined(
        self, api: ApiClient, api_address: ApiAddress, hosts_url: str, kubelet_port: int | None
    ) -> AsyncIterator[None]:
        """Register every node; heartbeats and pods go on inside the block.

        `api_address` is the API server's for pods that have an account there, `hosts_url` where agents reach the hosts,
        `kubelet_port` the kubelet port of the Nodes, if there is one. Raises ApiError if the cluster does not tell its
        version, and ExceptionGroup if a background task fails, which is a bug.
        """
        events = EventRecorder(api, "kubelet")
        registering = asyncio.Semaphore(_REGISTER_AT_ONCE)
        version = await server_version(api)
        for number, (name, machine) in enumerate(self.machines.items()):
            self.kubelets[name] = Kubelet(
                machine,
                api,
                events,
                facts=NodeFacts(
                    number,
                    name,
                    len(machine.gpus),
                    kubelet_port,
                    version,
                    gpu_operator=bool(machine.gpus) and self._settings.gpu_operator is not GpuOperator.NONE,
                    hold_out=number in self._hold_outs,
                ),
                api_address=api_address,
                host={"GAMEDAY_VIRTUAL_HOST": f"{hosts_url}/{name}"},
                state_dir=self._settings.state_dir / "pods",
                label=self._labeller(machine.index),
                registering=registering,
                dra=self._settings.dra_xid_effect if self._settings.dra else None,
                topology_interval_s=self._settings.topology_interval_s,
                lease_s=lease_duration_s(len(self.machines)),
                gpu_operator=self._settings.gpu_operator if machine.gpus else GpuOperator.NONE,
            )
        types = f"{INSTANCE_TYPE_LABEL} in ({INSTANCE_TYPE},{CLIENT_INSTANCE_TYPE})"
        nodes = Reflector(api, "/api/v1/nodes", label_selector=types)
        nodes.on(add=self._node_seen, update=lambda _, node: self._node_seen(node), delete=self._node_deleted)
        pods = Reflector(api, "/api/v1/pods", field_selector="spec.nodeName!=")
        pods.on(add=self._seen, update=lambda _, pod: self._seen(pod), delete=self._gone)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(kubelet.run()) for kubelet in self.kubelets.values()]
            tasks += [group.create_task(events.run()), group.create_task(nodes.run()), group.create_task(self._beat())]
            if self._settings.dra:
                tasks.append(group.create_task(self._slices(api).run()))
            if self._settings.topology_interval_s:
                tasks.append(group.create_task(self._topology_definition(api).run()))
            try:
                await asyncio.gather(*(kubelet.registered.wait() for kubelet in self.kubelets.values()))
                tasks.append(group.create_task(pods.run()))
                yield
            finally:
                for kubelet in self.kubelets.values():
                    kubelet.stop()
                    kubelet.machine.components.reboot()  # a log store that was stopped must be able to end, too
                for task in tasks:
                    task.cancel()

    async def _beat(self) -> None:
        while True:
            for machine in self.with_gpus:
                if machine.powered:
                    machine.beat()
            await asyncio.sleep(BEAT_EVERY_S)

    @property
    def _hold_outs(self) -> range:
        """Numbers of the GPU nodes that are spares."""
        return range(self._settings.nodes - self._settings.hold_outs, self._settings.nodes)

    def pod(self, namespace: str, name: str) -> PodRunner | None:
        """The newest pod of that name on any of the nodes."""
        key = f"{namespace}/{name}"
        found = [runner for kubelet in self.kubelets.values() for runner in kubelet.pods.values() if runner.key == key]
        return found[-1] if found else None

    def _hold_log_store(self, frozen: bool) -> None:
        """Stop the log store's process or let it go on, which is the effect of freezing its pod's cgroup."""
        if (pid := _log_store(self._settings.log_store_pid)) is not None:
            os.kill(pid, signal.SIGSTOP if frozen else signal.SIGCONT)
        else:
            log.warning("no log store to stop or to let go on is known")

    def _labeller(self, node: int) -> Callable[[int, GpuHolder | None], None]:
        return lambda gpu, holder: self.exposition.hold((node, gpu), holder)

    def _slices(self, api: ApiClient) -> Reflector:
        """Return the watch that tells the drivers when somebody changed or removed one of their slices."""

        def seen(found: Object, *, there: bool = True) -> None:
            kubelet = self.kubelets.get(found["spec"].get("nodeName", ""))
            if kubelet and kubelet.dra:
                kubelet.dra.slice_changed(found if there else None)

        slices = Reflector(api, SLICES, field_selector=f"spec.driver={DRIVER}")
        slices.on(add=seen, update=lambda _, new: seen(new), delete=partial(seen, there=False))
        return slices

    def _topology_definition(self, api: ApiClient) -> Reflector:
        """Return the watch that runs the topology updaters while the cluster serves their objects."""

        def switch(*, on: bool) -> None:
            for kubelet in self.kubelets.values():
                if kubelet.topology:
                    kubelet.topology.switch(on=on)

        found = Reflector(api, DEFINITIONS, field_selector=f"metadata.name={DEFINITION}")
        found.on(
            add=lambda one: switch(on=is_served(one)),
            update=lambda _, one: switch(on=is_served(one)),
            delete=lambda _: switch(on=False),
        )
        return found

    def _seen(self, pod: Object) -> None:
        node = pod["spec"].get("nodeName", "")
        if kubelet := self.kubelets.get(node):
            if RUN_LABEL in pod["metadata"].get("labels", {}):
                self.worked_on.add(node)
            kubelet.pod_seen(pod)

    def _gone(self, pod: Object) -> None:
        if kubelet := self.kubelets.get(pod["spec"].get("nodeName", "")):
            kubelet.pod_gone(pod)

    def _node_seen(self, node: Object) -> None:
        if kubelet := self.kubelets.get(node["metadata"]["name"]):
            kubelet.node_seen(node)

    def _node_deleted(self, node: Object) -> None:
        if kubelet := self.kubelets.get(node["metadata"]["name"]):
            kubelet.node_deleted(node)


def _client_machines(settings: Settings) -> dict[str, Machine]:
    """Return the machines without GPUs. No dmesg shipper runs on them, because its DaemonSet wants GPUs."""
    fleet = GpuFleet(settings.client_names, 0)
    cache = DcgmCache(fleet)
    return {
        name: Machine(index, name, fleet, cache, lambda *_: None, settings.boot_s)
        for index, name in enumerate(settings.client_names)
    }


def _log_store(file: Path | None) -> int | None:
    """Return the process that the file names, if it still is that one: process numbers are reused."""
    try:
        pid = int(file.read_text()) if file else 0
        command = Path(f"/proc/{pid}/cmdline").read_bytes() if pid > 1 else b""
    except (OSError, ValueError):
        return None
    return pid if _LOG_STORE in command else None


async def server_version(api: ApiClient) -> str:
    """Return the server's version; wait while it is not there yet. Raises ApiError when it refuses."""
    while True:
        try:
            return str((await api.get("/version"))["gitVersion"])
        except ApiError as error:
            if not error.unreachable and error.status < 500:
                raise
            log.warning("the cluster is not there yet: %s", error)
        await asyncio.sleep(_ASK_AGAIN_S)
