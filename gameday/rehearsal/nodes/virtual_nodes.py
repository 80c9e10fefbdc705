"""All virtual nodes of this process: one GPU fleet, one watch of pods, one kubelet per node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from gameday.rehearsal.apiclient import ApiClient, Object, Reflector
from gameday.rehearsal.controllers.events import EventRecorder
from gameday.rehearsal.nodes.dcgm import DcgmCache
from gameday.rehearsal.nodes.devices import GpuHolder
from gameday.rehearsal.nodes.exposition import Exposition
from gameday.rehearsal.nodes.gpus import GpuFleet
from gameday.rehearsal.nodes.identity import gpu_identities
from gameday.rehearsal.nodes.kubelet import Kubelet
from gameday.rehearsal.nodes.logship import LogShipper
from gameday.rehearsal.nodes.machine import Machine
from gameday.rehearsal.nodes.pod_status import Container

_REGISTER_AT_ONCE = 16


@dataclass(frozen=True)
class Settings:
    """What the command line says. `boot_s`: seconds a reboot takes."""

    nodes: int
    gpus: int
    prefix: str
    boot_s: float
    state_dir: Path

    @property
    def names(self) -> list[str]:
        return [f"{self.prefix}-{number}" for number in range(1, self.nodes + 1)]


class VirtualNodes:
    """The machines exist from the start; `joined` puts them into a cluster."""

    def __init__(self, settings: Settings, shipper: LogShipper) -> None:
        names = settings.names
        self._settings = settings
        self.fleet = GpuFleet(names, settings.gpus)
        self.cache = DcgmCache(self.fleet)
        self.machines = {
            name: Machine(index, name, self.fleet, self.cache, shipper.ship, settings.boot_s)
            for index, name in enumerate(names)
        }
        self.exposition = Exposition(self.cache, names, [gpu_identities(name, settings.gpus) for name in names])
        self.kubelets: dict[str, Kubelet] = {}

    @asynccontextmanager
    async def joined(self, api: ApiClient, port: int) -> AsyncIterator[None]:
        """Register every node with `port` as its kubelet's; heartbeats and pods go on inside the block.

        Raises ExceptionGroup where a background task fails, which is a bug.
        """
        events = EventRecorder(api, "kubelet")
        for name, machine in self.machines.items():
            self.kubelets[name] = self._kubelet(machine, api, events, port)
        limit = asyncio.Semaphore(_REGISTER_AT_ONCE)

        async def register(kubelet: Kubelet) -> None:
            async with limit:
                await kubelet.register()

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(events.run())]
            await asyncio.gather(*(register(kubelet) for kubelet in self.kubelets.values()))
            pods = Reflector(api, "/api/v1/pods")
            pods.on(add=self._seen, update=lambda _, pod: self._seen(pod), delete=self._gone)
            tasks.append(group.create_task(pods.run()))
            tasks += [group.create_task(kubelet.run()) for kubelet in self.kubelets.values()]
            try:
                yield
            finally:
                for kubelet in self.kubelets.values():
                    kubelet.stop()
                for task in tasks:
                    task.cancel()

    def container(self, namespace: str, pod: str, name: str) -> Container | None:
        """A container of a pod on any of the nodes, the newest pod of that name."""
        key = f"{namespace}/{pod}"
        found = [runner for kubelet in self.kubelets.values() for runner in kubelet.pods.values() if runner.key == key]
        return found[-1].find(name) if found else None

    def _kubelet(self, machine: Machine, api: ApiClient, events: EventRecorder, port: int) -> Kubelet:
        def label(gpu: int, holder: GpuHolder | None) -> None:
            self.exposition.hold((machine.index, gpu), holder)

        return Kubelet(machine, api, events, port=port, state_dir=self._settings.state_dir / "pods", label=label)

    def _seen(self, pod: Object) -> None:
        if kubelet := self.kubelets.get(pod["spec"].get("nodeName", "")):
            kubelet.pod_seen(pod)

    def _gone(self, pod: Object) -> None:
        if kubelet := self.kubelets.get(pod["spec"].get("nodeName", "")):
            kubelet.pod_gone(pod)
