"""The base of our small HTTP servers, which log nothing about broken requests of foreign clients."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MOST_CONNECTIONS = 64
"""Each is a thread. Prometheus and Alertmanager have a few open at a time; a browser opens six per site."""


class QuietServer(ThreadingHTTPServer):
    """A server with a thread for each connection, which logs nothing about broken connections.

    If there are too many connections, the oldest one still waiting for its request is ended, so a client that holds
    connections open without a request keeps nobody out.
    """

    daemon_threads = True
    request_queue_size = 2 * MOST_CONNECTIONS
    """Connections that wait to be accepted; beyond them a client's system tries again only after a second."""

    def __init__(self, address: tuple[str, int], handler: Any) -> None:
        """Bind the port.

        Args:
            address: A name or an IPv4 or IPv6 address, and a port; 0: any free one.
            handler: Creates the handler of each connection.

        Raises:
            OSError: The port cannot be bound.
        """
        self.address_family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        super().__init__(address, handler)
        self._open: dict[socket.socket | None, bool] = {}
        """The connections, oldest first; True if the request has come and is worked on."""
        self._change = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in its own thread, and end the oldest waiting one if too many are open."""
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
        """Keep a connection with a complete request until it is answered."""
        with self._change:
            if request in self._open:
                self._open[request] = True

    def shutdown_request(self, request: Any) -> None:
        with self._change:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing: a sender could fill the log."""


class QuietHandler(BaseHTTPRequestHandler):
    """A handler that reveals no version, and closes a connection that is silent for ten seconds."""

    timeout = 10.0
    server_version = "gameday"
    sys_version = ""

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a sender could fill the log."""
