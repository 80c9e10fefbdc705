"""The way from the official Kubernetes client to a server in memory, on which a script may cut, lose and double."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import partial
from http.client import RemoteDisconnected
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import NewConnectionError
from urllib3.util import Retry

from gameday.clock import Clock
from gameday.cluster.kubernetes import Kubernetes
from tests.support.scripted.api_server import Answer

Fate = Literal["answered", "lost", "doubled", "refused"]
"""What becomes of a request: it is answered; carried out, and its answer lost; carried out twice; not let through."""
Moment = Literal["before", "after"]


class Killed(BaseException):
    """The process is dead: no more code of ours does anything in the cluster or on the disk."""


class OnRequest(Protocol):
    """Decides about a request before it is carried out, and hears of it after; may raise Killed."""

    def __call__(self, method: str, path: str, moment: Moment) -> Fate | None: ...


@dataclass(frozen=True)
class Request:
    """A request as it reaches the server."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


class Wire:
    """Carries requests of one process to the server."""

    def __init__(
        self,
        clock: Clock,
        serve: Callable[[Request], Answer],
        is_away: Callable[[], bool],
        on_request: Callable[[], OnRequest | None],
    ) -> None:
        """Carry nothing yet.

        Args:
            clock: The time by which a client pauses between its attempts.
            serve: The server.
            is_away: Returns whether nothing listens at the server's address now.
            on_request: Returns who decides about requests now.
        """
        self._clock = clock
        self._serve = serve
        self._is_away = is_away
        self._on_request = on_request

    def connect(self, kubernetes: Kubernetes) -> None:
        """Put this wire under a client in place of its sockets; its pools, its retries and its counts stay."""
        rest = kubernetes.api.rest_client
        manager = rest.pool_manager
        manager.pool_classes_by_scheme = {"http": partial(_Pool, wire=self)}
        options = manager.connection_pool_kw
        policy = options["retries"] = _pausing(options["retries"], self._clock)
        rest.pool_manager = _ShortCut(self, manager, policy)

    @property
    def is_calm(self) -> bool:
        """True while every request is simply answered."""
        return not self._is_away() and self._on_request() is None

    def carry(self, request: Request) -> Answer:
        """Return the server's answer.

        Raises:
            ConnectionError: The request or its answer is lost.
        """
        if self._is_away():
            raise ConnectionRefusedError(111, "Connection refused")
        path = urlsplit(request.url).path
        on_request = self._on_request()
        fate = on_request(request.method, path, "before") if on_request else None
        if fate == "refused":
            raise ConnectionRefusedError(111, "Connection refused")
        answer = self._serve(request)
        if fate == "doubled":
            answer = self._serve(request)
        if on_request:
            on_request(request.method, path, "after")
        if fate == "lost":
            raise RemoteDisconnected("Remote end closed connection without response")
        return answer


class _ShortCut:
    """urllib3's pools, which are left out where there is nothing for them to do: they cost more than the server."""

    def __init__(self, wire: Wire, pools: urllib3.PoolManager, policy: Retry) -> None:
        self._wire = wire
        self._pools = pools
        self._policy = policy

    def request(self, method: str, url: str, **options: Any) -> Any:
        """Send a request."""
        if not self._wire.is_calm:
            return self._pools.request(method, url, **options)
        body = options.get("body") or b""
        sent = body.encode() if isinstance(body, str) else body
        answer = self._wire.carry(Request(method, url, options["headers"], sent))
        return _response(answer, method, self._policy)

    def clear(self) -> None:
        """Close nothing."""


class _Pool(urllib3.HTTPConnectionPool):
    """A pool whose connections are never opened: its requests go over a wire."""

    def __init__(self, host: str, port: int | None = None, *, wire: Wire, **options: Any) -> None:
        super().__init__(host, port, **options)
        self._wire = wire

    def _make_request(  # type: ignore[override]
        self,
        conn: Any,
        method: str,
        url: str,
        body: Any = None,
        headers: Any = None,
        retries: Any = None,
        **options: Any,
    ) -> urllib3.HTTPResponse:
        sent = body.encode() if isinstance(body, str) else body or b""
        try:
            answer = self._wire.carry(Request(method, url, headers or {}, sent))
        except ConnectionRefusedError as error:
            raise NewConnectionError(conn, f"Failed to establish a new connection: {error}") from error
        return _response(answer, method, retries)


def _response(answer: Answer, method: str, retries: Retry) -> urllib3.HTTPResponse:
    return urllib3.HTTPResponse(
        io.BytesIO(answer.body),
        answer.headers,
        answer.status,
        preload_content=False,
        request_method=method,
        retries=retries,
    )


def _pausing(policy: Retry, clock: Clock) -> Retry:
    """Return the same policy with its pauses by a clock."""

    class Pausing(type(policy)):  # type: ignore[misc]
        def sleep_for_retry(self, response: Any) -> bool:
            seconds = self.get_retry_after(response)
            if seconds:
                clock.sleep(seconds)
            return bool(seconds)

        def _sleep_backoff(self) -> None:
            clock.sleep(self.get_backoff_time())

    made = copy(policy)
    made.__class__ = Pausing
    return made
