"""`python -m gameday_rehearsal.this_machine --kubeconfig F`: print one JSON line once this machine is a node."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from aiohttp import web

from gameday.cluster.manifests import ROLE_LABEL
from gameday.errors import HostError, TlsFolderError
from gameday.processes.lifeline import die_with_parent
from gameday.xid.lines import BEAT
from gameday_rehearsal.lease_duration import lease_duration_s
from gameday_rehearsal.nodes.api_account import ApiAddress
from gameday_rehearsal.nodes.exporter_release import ExporterRelease
from gameday_rehearsal.nodes.exposition import CONTENT_TYPE
from gameday_rehearsal.nodes.kubelet import Kubelet
from gameday_rehearsal.nodes.kubelet_server import application, serving_tls
from gameday_rehearsal.nodes.logship import LogShipper
from gameday_rehearsal.nodes.node_object import NodeFacts
from gameday_rehearsal.nodes.pod import PodRunner
from gameday_rehearsal.nodes.serving import listening
from gameday_rehearsal.nodes.virtual_nodes import BEAT_EVERY_S, server_version
from gameday_rehearsal.session_token import session_token
from gameday_rehearsal.this_machine import NODE
from gameday_rehearsal.this_machine.gpus import GpuReader, Gpus, find_gpus
from gameday_rehearsal.this_machine.kernel_log import following
from gameday_rehearsal.this_machine.machine import ThisMachine, hardware_of
from gameday_rehearsal.this_machine.metrics import render
from kubesim.client import ApiClient, Object, Reflector
from kubesim.controllers.events import EventRecorder
from kubesim.errors import ApiError, KubeconfigError
from kubesim.kubeconfig import Kubeconfig

_PASSED_ON = (
    "HOME",
    "LD_LIBRARY_PATH",
    "CUDA_PATH",
    "CUDA_HOME",
    "CUPY_CACHE_DIR",
    "MOCK_NVML_CONFIG",
    "MOCK_NVML_STATE",
)
"""Variables by which an agent finds the driver, CUDA and CuPy's compiled kernels; the last two are mock NVMLs'."""
_NEEDS_GPUS_CLOSED = ("mark", "remediate")
"""Roles of the agents before which NVML is closed, if a GPU is going to be reset."""


def main() -> int:
    arguments = _arguments()
    die_with_parent()
    logging.basicConfig(level=logging.WARNING, format="this machine: %(levelname)s %(message)s")
    try:
        asyncio.run(_serve(arguments, Kubeconfig.load(arguments.kubeconfig), find_gpus()))
    except (KubeconfigError, TlsFolderError, ApiError, HostError, OSError) as error:
        print(f"this machine: {error}", file=sys.stderr)
        return 1
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gameday_rehearsal.this_machine", description="this machine as a node")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--tls-folder", type=Path, required=True, help="kubelet.crt, kubelet.key and ca.crt")
    parser.add_argument("--loki-url", required=True, help="where the kernel log is shipped to")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--state-dir", type=Path, required=True, help="pods' folders")
    parser.add_argument("--exporter", type=ExporterRelease, required=True)
    parser.add_argument("--lets-go", action="store_true", help="keep NVML closed but for readings: a GPU will be reset")
    return parser.parse_args()


class Node:
    """The node of this machine in a cluster."""

    def __init__(self, gpus: Gpus, arguments: argparse.Namespace) -> None:
        self.gpus = gpus
        self.release: ExporterRelease = arguments.exporter
        self.kubelets: dict[str, Kubelet] = {}
        self.reader = GpuReader(lets_go=arguments.lets_go, pauses=self._needs_gpus_closed, changed=self._gpus_changed)
        self.machine = ThisMachine(gpus, self.reader)
        self._state_dir: Path = arguments.state_dir
        self._loop = asyncio.get_running_loop()

    @asynccontextmanager
    async def joined(self, api: ApiClient, address: ApiAddress, kubelet_port: int) -> AsyncIterator[None]:
        """Be a node of the cluster for the block. Raises ApiError if the cluster does not tell its version."""
        events = EventRecorder(api, "kubelet")
        version = await server_version(api)
        kubelet = self.kubelets[NODE] = Kubelet(
            self.machine,
            api,
            events,
            facts=NodeFacts(0, NODE, len(self.gpus.identities), kubelet_port, version, real=hardware_of(self.gpus)),
            api_address=address,
            host={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
            state_dir=self._state_dir,
            label=lambda *_: None,
            registering=asyncio.Semaphore(1),
            dra=None,
            topology_interval_s=None,
            lease_s=lease_duration_s(1),
        )
        nodes = Reflector(api, "/api/v1/nodes", field_selector=f"metadata.name={NODE}")
        nodes.on(add=kubelet.node_seen, update=lambda _, node: kubelet.node_seen(node), delete=kubelet.node_deleted)
        pods = Reflector(api, "/api/v1/pods", field_selector=f"spec.nodeName={NODE}")
        pods.on(add=kubelet.pod_seen, update=lambda _, pod: kubelet.pod_seen(pod), delete=kubelet.pod_gone)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one.run()) for one in (kubelet, events, nodes)]
            try:
                await kubelet.registered.wait()
                tasks.append(group.create_task(pods.run()))
                yield
            finally:
                kubelet.stop()
                for task in tasks:
                    task.cancel()

    def pod(self, namespace: str, name: str) -> PodRunner | None:
        """Return the newest pod of that name."""
        found = [runner for runner in self._pods() if runner.key == f"{namespace}/{name}"]
        return found[-1] if found else None

    async def metrics(self, _: web.Request) -> web.Response:
        """Serve what dcgm-exporter would."""
        holder = self.kubelets[NODE].devices.holder if self.kubelets else lambda _: None
        page = render(self.gpus, self.reader.reading(), self.release, holder)
        return web.Response(body=page.encode(), headers={"Content-Type": CONTENT_TYPE})

    def _pods(self) -> list[PodRunner]:
        return [runner for kubelet in self.kubelets.values() for runner in list(kubelet.pods.values())]

    def _needs_gpus_closed(self) -> bool:
        return any(runner.runs and _role(runner.pod) in _NEEDS_GPUS_CLOSED for runner in self._pods())

    def _gpus_changed(self) -> None:
        """Tell the kubelet, from the reader's thread."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self.machine.gpus_changed)


def _role(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(ROLE_LABEL, ""))


async def _serve(arguments: argparse.Namespace, kubeconfig: Kubeconfig, gpus: Gpus) -> None:
    """Be a node until SIGTERM. Raises ApiError, HostError, TlsFolderError, OSError."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        node = Node(gpus, arguments)
        shipper = await stack.enter_async_context(LogShipper(arguments.loki_url, session_token()))
        await stack.enter_async_context(following(lambda line: shipper.ship_line(NODE, time.time_ns(), line)))
        stack.push_async_callback(_ended, asyncio.create_task(_beat(shipper)))
        node.reader.start()
        stack.callback(node.reader.stop)
        app = web.Application()
        app.router.add_get("/metrics", node.metrics)
        port = await stack.enter_async_context(listening(app, arguments.port))
        tls = serving_tls(arguments.tls_folder)
        kubelet_port = await stack.enter_async_context(listening(application(node), 0, tls))
        api = await stack.enter_async_context(ApiClient(kubeconfig, "gameday-this-machine"))
        await stack.enter_async_context(node.joined(api, ApiAddress.of(kubeconfig), kubelet_port))
        print(json.dumps({"ready": True, "port": port, "nodes": [NODE]}), flush=True)
        await stop.wait()


async def _beat(shipper: LogShipper) -> None:
    """Print the shipper's sign of life beside the kernel log, as deploy/dmesg-shipper does."""
    while True:
        up = time.clock_gettime(time.CLOCK_BOOTTIME)
        shipper.ship_line(NODE, time.time_ns(), f"[{up:.2f}] {BEAT}")
        await asyncio.sleep(BEAT_EVERY_S)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


if __name__ == "__main__":
    sys.exit(main())
