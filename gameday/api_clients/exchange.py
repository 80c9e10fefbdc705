"""The connection of a simulated client; it sends each request once and hides no failure."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http.client import HTTPException, HTTPSConnection
from urllib.parse import urlencode, urlsplit

from gameday import __version__
from gameday.api_clients.connection import read_token
from gameday.host.base import ApiServer

TIMEOUT_S = 90.0
"""Time-out of each read: longer than the server's limit of 60 s for a request, and than the minute between a watch's
bookmarks.
"""


class Failed(Exception):
    """The request has no complete answer (`status` 0), or one that is not a success."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Exchange:
    """A connection, made with its first request and again after a failure. Only `end` is for other threads."""

    def __init__(self, server: ApiServer, tls: ssl.SSLContext) -> None:
        parts = urlsplit(server.url)
        assert parts.hostname
        self._connection = HTTPSConnection(parts.hostname, parts.port, timeout=TIMEOUT_S, context=tls)
        self._server = server
        self._ended = threading.Event()

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = "application/json",
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        """Send a request once and return its answer's body. Raises Failed."""
        return b"".join(self._exchange(method, path, query or {}, accept, body, content_type, by_line=False))

    def lines(self, path: str, *, query: Mapping[str, str], accept: str) -> Iterator[bytes]:
        """Yield the lines of a watch until the server ends it. Raises Failed."""
        yield from self._exchange("GET", path, query, accept, None, "", by_line=True)

    def end(self) -> None:
        """End the request under way and refuse further ones."""
        self._ended.set()
        connected = self._connection.sock
        if connected:
            # Below TLS, so that the reading thread is not broken.
            with suppress(OSError):
                socket.socket.shutdown(connected, socket.SHUT_RDWR)

    def _exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        accept: str,
        body: bytes | None,
        content_type: str,
        *,
        by_line: bool,
    ) -> Iterator[bytes]:
        if self._ended.is_set():
            raise Failed(0, "ended")
        headers = {
            "Accept": accept,
            # The server compresses what is above 128 KiB: that would cost its CPU, beside the request's own.
            "Accept-Encoding": "identity",
            "User-Agent": f"gameday-api-client/{__version__}",
        }
        if body is not None:
            headers["Content-Type"] = content_type
        whole = False
        try:
            headers["Authorization"] = f"Bearer {read_token(self._server)}"
            self._connection.request(method, f"{path}?{urlencode(query)}" if query else path, body, headers)
            with self._connection.getresponse() as response:
                if response.status >= 400:
                    text = response.read().decode("utf-8", "replace")
                    whole = True
                    raise Failed(response.status, f"HTTP {response.status}: {' '.join(text.split())[:200]}")
                if by_line:
                    yield from iter(response.readline, b"")
                else:
                    yield response.read()
            whole = True
        except (HTTPException, OSError, ValueError) as problem:  # ValueError: the socket was closed under the reader
            raise Failed(0, str(problem) or type(problem).__name__) from None
        finally:
            if not whole:
                self._connection.close()
