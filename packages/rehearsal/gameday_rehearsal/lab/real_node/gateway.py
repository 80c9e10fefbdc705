"""`python -m gameday_rehearsal.lab.real_node.gateway`: the way between a real node's network and loopback.

On a socket it is the HTTP proxy of the API servers' egress selector (CONNECT), so that they reach kubelet and pods; on
loopback it answers `GET /ADDRESS:PORT/PATH` with what that says in the node's network. There it forwards to the API
server. A socket belongs to the network namespace of the thread that made it, wherever it is used.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from ipaddress import ip_address
from pathlib import Path

from gameday.processes.lifeline import die_with_parent
from gameday_rehearsal.lab.real_node.namespaces import first_process, join
from gameday_rehearsal.lab.real_node.network import API_SERVER, INSIDE

_CHUNK = 65536
_CONNECTS_WITHIN_S = 10.0
"""Seconds for a connection, our own choice: shorter than the API server's own 30 s for kubelet."""


class Gateway:
    """The sockets on both sides."""

    def __init__(self, pid: int, api_server: int) -> None:
        """Prepare. Raises OSError.

        Args:
            pid: The node's first process.
            api_server: The API server's port on loopback.
        """
        self._node = os.pidfd_open(pid)
        self._inside = ThreadPoolExecutor(1)
        self._inside.submit(join, pid, ("net",)).result()
        self._api_server = ("127.0.0.1", api_server)

    async def serve(self, egress: Path, port: int) -> None:
        """Listen, print the ready line, and serve until the node's first process ends. Raises OSError."""
        asyncio.get_running_loop().add_reader(self._node, os._exit, 1)  # no connection outlives the node
        egress.unlink(missing_ok=True)
        await asyncio.start_unix_server(self._proxy, egress)
        await asyncio.start_server(self._proxy, "127.0.0.1", port)
        listener = await self._socket(inside=True)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((API_SERVER, 443))
        await asyncio.start_server(self._forward, sock=listener)
        print(json.dumps({"ready": True}), flush=True)
        await asyncio.Event().wait()

    async def _socket(self, *, inside: bool) -> socket.socket:
        make = partial(socket.socket, socket.AF_INET, socket.SOCK_STREAM)
        made = await asyncio.get_running_loop().run_in_executor(self._inside, make) if inside else make()
        made.setblocking(False)
        return made

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._joined(reader, writer, *self._api_server, inside=False)

    async def _proxy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(OSError, ValueError, asyncio.LimitOverrunError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            method, target, _ = head.partition(b"\r\n")[0].decode("ascii").split(" ")
            if method == "CONNECT":
                host, _, port = target.rpartition(":")
                inside, first = _is_inside(host), b""
                answer = b"HTTP/1.1 200 OK\r\n\r\n"
            else:
                place, _, path = target.removeprefix("/").partition("/")
                host, _, port = place.rpartition(":")
                inside, answer = True, b""
                first = f"{method} /{path} HTTP/1.0\r\nHost: {place}\r\n\r\n".encode("ascii")
            await self._joined(reader, writer, host, int(port), inside=inside, first=first, answer=answer)

    async def _joined(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        host: str,
        port: int,
        *,
        inside: bool,
        first: bytes = b"",
        answer: bytes = b"",
    ) -> None:
        """Connect the client with an address, and pass bytes both ways until both are done."""
        made = await self._socket(inside=inside)
        try:
            async with asyncio.timeout(_CONNECTS_WITHIN_S):
                await asyncio.get_running_loop().sock_connect(made, (host, port))
        except OSError as error:  # TimeoutError is one
            made.close()
            with closing(writer):
                if answer or first:
                    writer.write(f"HTTP/1.1 502 {error.strerror or 'no answer'}\r\nContent-Length: 0\r\n\r\n".encode())
            return
        to_reader, to_writer = await asyncio.open_connection(sock=made)
        with closing(writer), closing(to_writer):
            writer.write(answer)
            to_writer.write(first)
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(reader, to_writer))
                both.create_task(_copy(to_reader, writer))


def _is_inside(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return any(address in network for network in INSIDE)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    with suppress(OSError):
        writer.write_eof()


def main() -> int:
    """Serve until the node or the parent ends; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m gameday_rehearsal.lab.real_node.gateway", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="the node's folder")
    parser.add_argument("--egress", type=Path, required=True, help="the socket for API servers")
    parser.add_argument("--port", type=int, required=True, help="the port on loopback")
    parser.add_argument("--api-server", type=int, required=True, help="the API server's port on loopback")
    chosen = parser.parse_args()
    die_with_parent()
    try:
        asyncio.run(Gateway(first_process(chosen.folder), chosen.api_server).serve(chosen.egress, chosen.port))
    except (OSError, ValueError) as error:  # such as: the node starts again just now
        print(f"gateway: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
