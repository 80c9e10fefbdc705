"""`python -m gameday_rehearsal.fake_detector`: one detector's stand-in as its own process of the rehearsal."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import signal
import sys
from pathlib import Path

from gameday.detectors.load import read_detector
from gameday.errors import DocumentError
from gameday.processes.lifeline import die_with_parent
from gameday_rehearsal.fake_detector.detector import run_fake_detector
from gameday_rehearsal.session_token import hosts_path, session_token
from kubesim.errors import KubeconfigError
from kubesim.kubeconfig import Kubeconfig

_USAGE = 64  # sysexits.h EX_USAGE


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gameday_rehearsal.fake_detector", description=__doc__)
    parser.add_argument("--profile", type=Path, required=True, help="the detector profile's file")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--loki-url", required=True)
    parser.add_argument("--nodes-url", required=True, help="the virtual nodes' server: metrics and machines")
    parser.add_argument("--repair", action="store_true", help="repair quarantined nodes as the profile describes")
    return parser.parse_args()


async def serve(arguments: argparse.Namespace) -> None:
    """Run until SIGTERM or SIGINT. Raises KubeconfigError and DocumentError."""
    profile, kubeconfig = read_detector(arguments.profile), Kubeconfig.load(arguments.kubeconfig)
    hosts_url = f"{arguments.nodes_url}{hosts_path(session_token())}"
    fake_detector = run_fake_detector(
        profile, kubeconfig, arguments.loki_url, arguments.nodes_url, hosts_url, say_ready, repair=arguments.repair
    )
    running = asyncio.ensure_future(fake_detector)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await running


def say_ready() -> None:
    print(json.dumps({"ready": True}), flush=True)


def main() -> int:
    die_with_parent()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        asyncio.run(serve(parse_arguments()))
    except (KubeconfigError, DocumentError) as error:
        print(error, file=sys.stderr)
        return _USAGE
    return 0


if __name__ == "__main__":
    sys.exit(main())
