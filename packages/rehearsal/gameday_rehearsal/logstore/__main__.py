"""`python -m gameday_rehearsal.logstore --port 0 [--data-dir DIR]`: print one JSON line on stdout once it serves.

With a token in the environment (`session_token.TOKEN_VARIABLE`), only clients that show it can push lines.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path

from aiohttp import web

from gameday.processes.lifeline import die_with_parent
from gameday_rehearsal.logstore.server import application
from gameday_rehearsal.logstore.store import Store
from gameday_rehearsal.session_token import TOKEN_VARIABLE

PID_FILE = "pid"
"""File in the data folder with the log store's process id, for a program that has to stop exactly this process."""


def main() -> int:
    arguments = _arguments()
    die_with_parent()
    logging.basicConfig(level=logging.WARNING, format="logstore: %(levelname)s %(message)s")
    try:
        asyncio.run(_serve(arguments.port, arguments.data_dir, arguments.max_bytes))
    except OSError as error:
        print(f"logstore: port {arguments.port} or folder {arguments.data_dir}: {error.strerror}; choose another",
              file=sys.stderr)  # fmt: skip
        return 1
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gameday_rehearsal.logstore", description="a stand-in for Loki on 127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--data-dir", type=Path, help="keep the lines here across restarts; default: memory only")
    parser.add_argument("--max-bytes", type=int, default=64 * 1024 * 1024, help="lines kept in memory, the newest")
    return parser.parse_args()


async def _serve(port: int, folder: Path | None, most_bytes: int) -> None:
    store = Store(folder, most_bytes)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    runner = web.AppRunner(application(store, os.environ.get(TOKEN_VARIABLE)), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port, reuse_address=True)
        await site.start()
        if folder:
            (folder / PID_FILE).write_text(str(os.getpid()))
        host, bound = runner.addresses[0][:2]
        print(json.dumps({"ready": True, "url": f"http://{host}:{bound}"}), flush=True)
        await stop.wait()
    finally:
        await runner.cleanup()
        store.close()


if __name__ == "__main__":
    sys.exit(main())
