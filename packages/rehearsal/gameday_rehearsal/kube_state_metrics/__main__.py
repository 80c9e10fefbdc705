"""`python -m gameday_rehearsal.kube_state_metrics`: metrics of the nodes, fed by a watch of the API server."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from contextlib import suppress
from pathlib import Path

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from gameday.processes.lifeline import die_with_parent
from gameday_rehearsal.kube_state_metrics.exposition import NodeCollector
from kubesim.client import ApiClient, Reflector
from kubesim.errors import KubeconfigError
from kubesim.kubeconfig import Kubeconfig

_USAGE = 64  # sysexits.h EX_USAGE


def main() -> int:
    arguments = _arguments()
    die_with_parent()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    try:
        asyncio.run(_until_asked(Kubeconfig.load(arguments.kubeconfig), arguments.port))
    except KubeconfigError as error:
        print(error, file=sys.stderr)
        return _USAGE
    except OSError as error:
        print(f"port {arguments.port}: {error.strerror}; choose another", file=sys.stderr)
        return 1
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gameday_rehearsal.kube_state_metrics", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True, help="on 127.0.0.1")
    return parser.parse_args()


async def _until_asked(kubeconfig: Kubeconfig, port: int) -> None:
    """Serve until SIGTERM or SIGINT. Raises OSError."""
    serving, loop = asyncio.ensure_future(_serve(kubeconfig, port)), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    with suppress(asyncio.CancelledError):
        await serving


async def _serve(kubeconfig: Kubeconfig, port: int) -> None:
    """Serve `/metrics` until cancelled, as soon as the nodes are known. Raises OSError."""
    async with ApiClient(kubeconfig, "kube-state-metrics") as api, asyncio.TaskGroup() as tasks:
        nodes = Reflector(api, "/api/v1/nodes")
        tasks.create_task(nodes.run())
        await nodes.synced.wait()
        runner = web.AppRunner(_application(nodes), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port, reuse_address=True).start()
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()


def _application(nodes: Reflector) -> web.Application:
    registry = CollectorRegistry()
    registry.register(NodeCollector(nodes.store))

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    return app


if __name__ == "__main__":
    sys.exit(main())
