"""The base of our small HTTP servers: what foreign clients send or break off leaves no word on terminal or log."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class QuietServer(ThreadingHTTPServer):
    """A server with a thread for each connection, which says nothing of connections that broke."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a sender could fill the log."""


class QuietHandler(BaseHTTPRequestHandler):
    """A handler that gives no version away, and closes a connection on which nothing comes for ten seconds."""

    timeout = 10.0
    server_version = "gameday"
    sys_version = ""

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a sender could fill the log."""
