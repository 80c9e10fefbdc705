"""`python -m kubesim.controllers`: run the scheduler and the controllers until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from pathlib import Path

from kubesim.controllers.manager import Settings, run_controllers
from kubesim.errors import KubeconfigError
from kubesim.kubeconfig import Kubeconfig
from kubesim.process import die_with_parent


def parse_arguments() -> argparse.Namespace:
    defaults = Settings()
    parser = argparse.ArgumentParser(prog="python -m kubesim.controllers", description=__doc__)
    parser.add_argument("--kubeconfig-scheduler", type=Path, required=True, help="identity that binds pods")
    parser.add_argument("--kubeconfig-controllers", type=Path, required=True, help="identity of everything else")
    parser.add_argument(
        "--node-monitor-grace",
        type=float,
        default=defaults.node_monitor_grace_s,
        help="seconds of silence after which a node is Unknown (%(default)s)",
    )
    parser.add_argument(
        "--job-backoff",
        type=float,
        default=defaults.job_backoff_s,
        help="seconds before a Job's first failed pod is replaced (%(default)s)",
    )
    parser.add_argument(
        "--pod-gc-quarantine",
        type=float,
        default=defaults.pod_gc_quarantine_s,
        help="seconds a node must be gone before its pods are deleted (%(default)s)",
    )
    return parser.parse_args()


async def serve(arguments: argparse.Namespace) -> None:
    """Run the controllers until SIGTERM or SIGINT. Raises KubeconfigError."""
    settings = Settings(
        node_monitor_grace_s=arguments.node_monitor_grace,
        job_backoff_s=arguments.job_backoff,
        pod_gc_quarantine_s=arguments.pod_gc_quarantine,
    )
    scheduler = Kubeconfig.load(arguments.kubeconfig_scheduler)
    controllers = Kubeconfig.load(arguments.kubeconfig_controllers)
    running = asyncio.ensure_future(run_controllers(scheduler, controllers, settings, say_ready))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await running


def say_ready() -> None:
    print(json.dumps({"ready": True, "pid": os.getpid()}), flush=True)


def main() -> int:
    die_with_parent()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    try:
        asyncio.run(serve(parse_arguments()))
    except KubeconfigError as error:
        print(error, file=sys.stderr)
        return 64
    return 0


if __name__ == "__main__":
    sys.exit(main())
