"""A simulated client: it sends the same LIST round by round, and backs off when the server asks it to.

It reads with the standard library's http.client in a thread of its own. On one core that takes 420 MB/s off a TLS
connection; httpx (h11) takes 130 and aiohttp 110 (measured with 54 MB LISTs of a real API server). What the clients
use of their machine is missing for a server beside them.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

from gameday import __version__
from gameday.api_clients.connection import ErrorWord, Headers, error_word, read_token, retry_after
from gameday.host.base import ApiServer
from gameday_control_plane.api_clients.lists import ListRequest
from gameday_control_plane.values.api_requests import ApiRequest

MOST_ATTEMPTS = 10
"""Refusals after which a LIST is given up, as by client-go (docs/sources.md, API server: LISTs)."""
LONGEST_PAUSE_S = 32.0
"""The longest Retry-After of API Priority and Fairness that a client obeys (docs/sources.md, API server: LISTs)."""
TIMEOUT_S = 90.0
"""Time-out of each read, longer than the server's limit of 60 s for a request, so that the server gives up first."""
_CHUNK_BYTES = 1 << 18
_END_OF_INITIAL_EVENTS = b"k8s.io/initial-events-end"


class StormClient:
    """A client with its connection. Only `end` may be called from another thread than `run`."""

    def __init__(
        self,
        number: int,
        server: ApiServer,
        tls: ssl.SSLContext,
        request: ListRequest,
        headers: Headers,
        sent: Callable[[int], None],
        log: Callable[[ApiRequest], None],
    ) -> None:
        """Prepare a client; it connects with its first request.

        Args:
            number: The client's.
            server: The API server.
            tls: Trusts the server's authority.
            request: The LIST.
            headers: Headers beside the client's own.
            sent: Called with the client's number each time a request is fully sent.
            log: Called with each request that has ended.
        """
        parts = urlsplit(server.url)
        assert parts.hostname
        self._connection = HTTPSConnection(parts.hostname, parts.port, timeout=TIMEOUT_S, context=tls)
        self._number = number
        self._server = server
        self._url = f"{request.path}?{urlencode(request.query)}" if request.query else request.path
        self._accept = request.accept
        self._headers = headers
        self._sent = sent
        self._log = log
        self._is_watch = "watch" in request.query
        self._buffer = memoryview(bytearray(_CHUNK_BYTES))
        self._ended = threading.Event()

    def run(self, rounds: int, start_after_s: float = 0.0) -> None:
        """Wait `start_after_s`, then ask `rounds` times, one after the other, or until `end` is called."""
        self._ended.wait(start_after_s)
        for number in range(rounds):
            for attempt in range(1, MOST_ATTEMPTS + 1):
                if self._ended.is_set():
                    return
                pause_s = asked_to_wait(self._ask(number, attempt))
                if pause_s is None:
                    break
                self._ended.wait(pause_s)
        self._connection.close()

    def end(self) -> None:
        """End the client, even in mid-request."""
        self._ended.set()
        connected = self._connection.sock
        if connected:
            # close() would break the thread that reads, and SSLSocket.shutdown() would hand it still encrypted bytes as
            # the answer.
            with suppress(OSError):
                socket.socket.shutdown(connected, socket.SHUT_RDWR)

    def _ask(self, number: int, attempt: int) -> ApiRequest:
        """Send one request, read its answer to the end, and log it."""
        answer = _Answer()
        sent_at, start = datetime.now(UTC), time.monotonic()
        error: ErrorWord = ""
        try:
            self._send()
            self._read(answer)
        except (HTTPException, OSError, ValueError) as problem:  # ValueError: the socket was closed under the reader
            error = "ended" if self._ended.is_set() else error_word(problem)
            self._connection.close()
        done = ApiRequest(
            client=self._number,
            round=number,
            attempt=attempt,
            sent_at=sent_at,
            start=round(start, 6),
            end=round(time.monotonic(), 6),
            error=error,
            **answer.fields(),
        )
        self._log(done)
        return done

    def _send(self) -> None:
        self._connection.putrequest("GET", self._url, skip_accept_encoding=True)
        for name, value in (
            ("Accept", self._accept),
            # The server compresses what is above 128 KiB: that would cost its CPU, beside the LIST's own.
            ("Accept-Encoding", "identity"),
            ("Authorization", f"Bearer {read_token(self._server)}"),
            ("User-Agent", f"gameday-api-client/{__version__}"),
            *self._headers,
        ):
            self._connection.putheader(name, value)
        self._connection.endheaders()
        self._sent(self._number)

    def _read(self, answer: _Answer) -> None:
        """Read the answer to its end. Raises OSError, HTTPException and ValueError."""
        with self._connection.getresponse() as response:
            answer.begin(response)
            if self._is_watch and response.status == 200:
                self._read_initial_events(response, answer)
                self._connection.close()
                return
            while got := response.readinto(self._buffer):
                answer.bytes += got
            if response.length:
                raise ConnectionResetError(f"{response.length} bytes of the answer are missing")

    def _read_initial_events(self, response: HTTPResponse, answer: _Answer) -> None:
        """Read a watch up to the bookmark after its initial events. Raises ConnectionResetError if none comes."""
        tail = b""
        while chunk := response.read1(_CHUNK_BYTES):
            answer.bytes += len(chunk)
            if _END_OF_INITIAL_EVENTS in tail + chunk:
                return
            tail = chunk[-len(_END_OF_INITIAL_EVENTS) :]
        raise ConnectionResetError("the watch ended before its initial events did")


class _Answer:
    """An answer as far as it was read."""

    def __init__(self) -> None:
        self.bytes = 0
        self._first_byte: float | None = None
        self._response: HTTPResponse | None = None

    def begin(self, response: HTTPResponse) -> None:
        self._first_byte = time.monotonic()
        self._response = response

    def fields(self) -> dict[str, Any]:
        """Return the fields of ApiRequest that come from the answer."""
        if self._response is None or self._first_byte is None:
            return {"first_byte": None, "status": 0, "bytes": 0}
        headers = self._response.headers
        return {
            "first_byte": round(self._first_byte, 6),
            "status": self._response.status,
            "bytes": self.bytes,
            "retry_after_s": retry_after(headers.get("Retry-After", "")),
            "flow_schema": headers.get("X-Kubernetes-PF-FlowSchema-UID", "")[:64],
            "priority_level": headers.get("X-Kubernetes-PF-PriorityLevel-UID", "")[:64],
        }


def asked_to_wait(request: ApiRequest) -> float | None:
    """Return the pause before the same LIST is sent again, or None if it is not.

    As in client-go: it is sent again only after a 429 or a 5xx with a Retry-After; any other failure ends the round.
    """
    again = request.status == 429 or request.status >= 500
    if not again or request.retry_after_s is None or request.error:
        return None
    return min(request.retry_after_s, LONGEST_PAUSE_S)
