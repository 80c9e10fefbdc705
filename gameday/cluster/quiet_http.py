"""The base of our small HTTP servers: what foreign clients send or break off leaves no word on terminal or log."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MOST_CONNECTIONS = 64
"""Each is a thread. Prometheus and Alertmanager have a few open at a time; a browser has six for a site."""


class QuietServer(ThreadingHTTPServer):
    """A server with a thread for each connection, which says nothing of connections that broke.

    One connection too many ends the oldest of those that still wait for their request: who holds connections open
    and asks for nothing keeps nobody out.
    """

    daemon_threads = True
    request_queue_size = 2 * MOST_CONNECTIONS
    """Connections that wait to be accepted: beyond them a client's system tries again only after a second."""

    def __init__(self, address: tuple[str, int], handler: Any) -> None:
        """Bind the port.

        Args:
            address: A name or an address of IPv4 or IPv6, and a port; 0: any free one.
            handler: Makes the handler of each connection.

        Raises:
            OSError: The port cannot be bound.
        """
        self.address_family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        super().__init__(address, handler)
        self._open: dict[socket.socket | None, bool] = {}
        """The connections, oldest first; True if the request has come and is worked on."""
        self._change = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, and end the oldest that waits if too many are open."""
        with self._change:
            self._open[request] = False
            waiting = (one for one, is_busy in self._open.items() if not is_busy)
            ended = next(waiting) if len(self._open) > MOST_CONNECTIONS else None
            self._open.pop(ended, None)
        if ended is not None:
            with suppress(OSError):  # it has just ended by itself
                ended.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def keep(self, request: Any) -> None:
        """Let a connection be whose request has come whole, until it is answered."""
        with self._change:
            if request in self._open:
                self._open[request] = True

    def shutdown_request(self, request: Any) -> None:
        with self._change:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a sender could fill the log."""


class QuietHandler(BaseHTTPRequestHandler):
    """A handler that gives no version away, and closes a connection on which nothing comes for ten seconds."""

    timeout = 10.0
    server_version = "gameday"
    sys_version = ""

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a sender could fill the log."""
