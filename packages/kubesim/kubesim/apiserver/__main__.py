"""`python -m kubesim.apiserver`: serve on loopback until stopped."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import socket
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aiohttp import web

from kubesim.apiserver import bootstrap
from kubesim.apiserver.server import MAX_BODY_BYTES, ApiServer
from kubesim.certificates import Authority
from kubesim.process import die_with_parent

# Connections that are busy this long after the watches ended are cut, so that the whole stop takes under 2 s.
_STOP_S = 0.5


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kubesim.apiserver", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 picks a free one")
    parser.add_argument("--data-dir", type=Path, required=True, help="certificates, tokens, kubeconfigs and state")
    parser.add_argument(
        "--runtime-class",
        action="append",
        default=[],
        metavar="NAME",
        help="a RuntimeClass that pods may name, of which there is no object; may be repeated",
    )
    return parser.parse_args()


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES)


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    return listener


async def _serve(folder: Path, listener: socket.socket, runtime_classes: Sequence[str]) -> None:
    authority = Authority(folder, "ca")
    serving = authority.server("kube-apiserver")
    authority.server("kubelet")  # for the processes that play the nodes
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(serving.certificate, serving.key)
    server = ApiServer(folder, authority, runtime_classes)
    url = f"https://127.0.0.1:{listener.getsockname()[1]}"
    bootstrap.write_kubeconfigs(folder, server.static, url, authority.certificate)
    await server.start()
    handler = web.Server(server.handle, request_factory=_request, handler_cancellation=True, access_log=None)
    runner = web.ServerRunner(handler)
    await runner.setup()
    await web.SockSite(runner, listener, ssl_context=tls, shutdown_timeout=_STOP_S).start()
    stopping = asyncio.Event()
    for sent in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sent, stopping.set)
    ready = {
        "ready": True,
        "url": url,
        "kubeconfig": str(folder / "admin.kubeconfig"),
        "ca": str(authority.certificate),
    }
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    await stopping.wait()
    await server.stop()
    await runner.cleanup()
    server.store.close()


def main() -> int:
    """Serve until stopped; return the exit status."""
    arguments = _arguments()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="apiserver %(levelname)s %(message)s")
    die_with_parent()
    folder: Path = arguments.data_dir.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        listener = _listen(arguments.port)
    except OSError as error:
        sys.stderr.write(f"cannot serve on 127.0.0.1:{arguments.port} from {folder}: {error}\n")
        return 1
    asyncio.run(_serve(folder, listener, arguments.runtime_class))
    return 0


if __name__ == "__main__":
    sys.exit(main())
