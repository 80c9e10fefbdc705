"""`python -m gameday_rehearsal.nodes --kubeconfig F`: print one JSON line on stdout once every node is registered."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import ssl
import sys
import tempfile
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path

from gameday.errors import TlsFolderError
from gameday.plan.rehearsal import DraXidEffect
from gameday.processes.lifeline import die_with_parent
from gameday.values.nodes import MAX_NODES
from gameday_rehearsal.guests.order import GuestOrder
from gameday_rehearsal.nodes import MAX_CLIENT_NODES, MAX_GPUS, guests, kubelet_server, server
from gameday_rehearsal.nodes.api_account import ApiAddress
from gameday_rehearsal.nodes.exporter_release import ExporterRelease
from gameday_rehearsal.nodes.gpu_operator import GpuOperator
from gameday_rehearsal.nodes.kernel_log_files import NodeFiles, node_files
from gameday_rehearsal.nodes.kubelet_server import serving_tls
from gameday_rehearsal.nodes.logship import LogShipper
from gameday_rehearsal.nodes.serving import listening
from gameday_rehearsal.nodes.virtual_nodes import Settings, VirtualNodes
from gameday_rehearsal.session_token import hosts_path, session_token
from gameday_rehearsal.slow_gpus import SlowGpu
from kubesim.client import ApiClient
from kubesim.errors import ApiError, KubeconfigError
from kubesim.kubeconfig import Kubeconfig

_NODES_PER_CONNECTION = 10
"""Nodes that share a connection. Each renews its Lease every ten seconds, and a renewal takes up to a second."""
_FEWEST_CONNECTIONS = 100


def main() -> int:
    arguments = _arguments()
    die_with_parent()
    logging.basicConfig(level=logging.WARNING, format="nodes: %(levelname)s %(message)s")
    try:
        kubeconfig = Kubeconfig.load(arguments.kubeconfig)
        tls = serving_tls(arguments.tls_folder) if arguments.tls_folder else None
        asyncio.run(_serve(arguments, kubeconfig, tls))
    except (KubeconfigError, TlsFolderError, ApiError, OSError) as error:
        print(f"nodes: {error}", file=sys.stderr)
        return 1
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gameday_rehearsal.nodes", description="virtual GPU nodes for any cluster")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--gpus", type=int, default=8, help="per node")
    parser.add_argument("--hold-outs", type=int, default=0, help="how many of the last nodes are spares")
    parser.add_argument("--weakly-cooled", metavar="NODE", help="the node whose last GPU gets too little air")
    parser.add_argument(
        "--slow-gpu",
        type=SlowGpu.parse,
        action="append",
        default=[],
        metavar="NODE/GPU=SHARE",
        help="a GPU that reaches only this share of its rate; may be given several times",
    )
    parser.add_argument(
        "--client-nodes", type=int, default=0, help="how many nodes without GPUs there are besides, for API clients"
    )
    parser.add_argument(
        "--dra", action="store_true", help="a DRA driver publishes the GPUs as ResourceSlices, and prepares claims"
    )
    parser.add_argument(
        "--dra-xid-effect",
        type=DraXidEffect,
        default=DraXidEffect.NO_SCHEDULE,
        help="effect of the taint that it puts on the device of an Xid",
    )
    parser.add_argument(
        "--lab-control", type=Path, help="control socket of the lab that the nodes join, for faults of its programs"
    )
    parser.add_argument(
        "--topology-interval",
        type=float,
        help="seconds between two writes of a topology updater without a change; without it there is no updater",
    )
    parser.add_argument(
        "--exporter",
        type=ExporterRelease,
        choices=list(ExporterRelease),
        default=ExporterRelease.CODED,
        help="release of dcgm-exporter that the metrics are written like",
    )
    parser.add_argument(
        "--gpu-operator",
        type=GpuOperator,
        choices=list(GpuOperator),
        default=GpuOperator.NONE,
        help="how containers come by GPUs and driver, and whether the operator's pods keep GPUs open",
    )
    parser.add_argument("--loki-url", help="where the kernel log is shipped to; without it, nowhere")
    parser.add_argument(
        "--log-store-pid", type=Path, help="file with the log store's process id, for a fault that makes it stand still"
    )
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument(
        "--tls-folder",
        type=Path,
        help="kubelet.crt, kubelet.key and ca.crt of the cluster's authority, as a lab's data folder has them; without"
        " it the nodes have no kubelet endpoint, and so no `kubectl logs`",
    )
    parser.add_argument(
        "--kernel-logs",
        type=Path,
        metavar="DIR",
        help="write the kernel log of each GPU node as DIR/NODE/kmsg (a pipe that reads like /dev/kmsg) and"
        " DIR/NODE/kern.log, and its GPUs as DIR/NODE/nvml.yaml",
    )
    parser.add_argument(
        "--guest", type=Path, help="file with the guest that watches the nodes, as the rehearsal writes it"
    )
    parser.add_argument("--state-dir", type=Path, help="pods' folders; default: a temporary one")
    parser.add_argument("--name-prefix", default="gpu-node")
    parser.add_argument("--boot-seconds", type=float, default=3.0, help="how long a reboot takes")
    arguments = parser.parse_args()
    if not 1 <= arguments.nodes <= MAX_NODES or not 1 <= arguments.gpus <= MAX_GPUS:
        parser.error(f"--nodes is 1 to {MAX_NODES}, --gpus 1 to {MAX_GPUS}")
    if not 0 <= arguments.client_nodes <= MAX_CLIENT_NODES:
        parser.error(f"--client-nodes is 0 to {MAX_CLIENT_NODES}")
    if arguments.guest and not arguments.kernel_logs:
        parser.error("--guest reads the files of --kernel-logs: name their folder, too")
    return arguments


async def _serve(arguments: argparse.Namespace, kubeconfig: Kubeconfig, tls: ssl.SSLContext | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with tempfile.TemporaryDirectory(prefix="gameday-nodes-") as folder:
        settings = Settings(
            nodes=arguments.nodes,
            gpus=arguments.gpus,
            prefix=arguments.name_prefix,
            boot_s=arguments.boot_seconds,
            state_dir=(arguments.state_dir or Path(folder)).resolve(),
            log_store_pid=arguments.log_store_pid,
            hold_outs=arguments.hold_outs,
            weakly_cooled=arguments.weakly_cooled,
            slow_gpus=tuple(arguments.slow_gpu),
            client_nodes=arguments.client_nodes,
            dra=arguments.dra,
            dra_xid_effect=arguments.dra_xid_effect,
            lab_control=arguments.lab_control,
            topology_interval_s=arguments.topology_interval,
            exporter=arguments.exporter,
            gpu_operator=arguments.gpu_operator,
        )
        token = session_token()
        async with LogShipper(arguments.loki_url, token) as shipper:
            nodes = VirtualNodes(settings, shipper)
            running = asyncio.create_task(_run(nodes, arguments, kubeconfig, tls, hosts_path(token)))
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not running.done():
                running.cancel()
            # A failure of the nodes themselves shows its traceback: it is a bug, not bad input.
            await asyncio.wait({running})
            if not running.cancelled():
                running.result()


async def _run(
    nodes: VirtualNodes, arguments: argparse.Namespace, kubeconfig: Kubeconfig, tls: ssl.SSLContext | None, hosts: str
) -> None:
    """Serve the nodes, with the hosts below the path `hosts`, and stay joined until cancelled.

    Raises ApiError, and OSError if the port is taken or files cannot be read or written.
    """
    order = GuestOrder.model_validate_json(arguments.guest.read_bytes()) if arguments.guest else None
    async with AsyncExitStack() as stack:
        bound = await stack.enter_async_context(listening(server.application(nodes, hosts), arguments.port))
        files: dict[str, NodeFiles] = {}
        if arguments.kernel_logs:
            files = await stack.enter_async_context(node_files(arguments.kernel_logs, nodes.with_gpus))
        kubelet = listening(kubelet_server.application(nodes), 0, tls) if tls else nullcontext()
        kubelet_port = await stack.enter_async_context(kubelet)
        connections = max(_FEWEST_CONNECTIONS, len(nodes.machines) // _NODES_PER_CONNECTION)
        client = ApiClient(kubeconfig, "gameday-virtual-nodes", connections)
        api = await stack.enter_async_context(client)
        url = f"http://127.0.0.1:{bound}"
        hosts_url = f"{url}{hosts}"
        await stack.enter_async_context(nodes.joined(api, ApiAddress.of(kubeconfig), hosts_url, kubelet_port))
        if order:
            machines = {machine.name: machine for machine in nodes.with_gpus}
            nodes.guests = await stack.enter_async_context(guests.running(order, machines, files, url, hosts_url))
        ready = {"ready": True, "port": bound, "metrics": f"{url}/metrics", "hosts": hosts_url}
        print(json.dumps({**ready, "kubelet_port": kubelet_port, "nodes": list(nodes.machines)}), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(main())
