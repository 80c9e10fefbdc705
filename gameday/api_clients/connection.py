"""The connection to the API server, with nothing that hides a failure."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from http.client import HTTPException
from typing import TYPE_CHECKING, Literal

from gameday import __version__
from gameday.errors import HostError
from gameday.host.base import ApiServer

if TYPE_CHECKING:
    import httpx

# httpx is imported where it is used: it loads slowly, and every command reads the faults.

Headers = Sequence[tuple[str, str]]
ErrorWord = Literal["", "refused", "timeout", "cut", "tls", "ended", "other"]
"""The reason why a request has no whole answer; empty if it has one. `ended`: the client itself had to end."""


def read_token(server: ApiServer) -> str:
    """Return the pod's token, read each time because the kubelet renews it in place. Raises OSError."""
    return server.token_file.read_text(encoding="utf-8").strip()


def tls_context(server: ApiServer) -> ssl.SSLContext:
    """Return a context that trusts only the API server's authority. Raises HostError."""
    try:
        return ssl.create_default_context(cafile=server.ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise HostError(f"{server.ca_file} is not a certificate authority: {error.strerror}") from None


def open_connection(server: ApiServer, timeout: httpx.Timeout, connections: int = 1) -> httpx.AsyncClient:
    """Return a client with connections of its own, without retries, redirects or a proxy. Raises HostError."""
    import httpx  # noqa: PLC0415

    def with_token(request: httpx.Request) -> httpx.Request:
        request.headers["Authorization"] = f"Bearer {read_token(server)}"
        return request

    return httpx.AsyncClient(
        base_url=server.url,
        auth=with_token,
        verify=tls_context(server),
        timeout=timeout,
        trust_env=False,
        limits=httpx.Limits(max_connections=connections),
        headers={"User-Agent": f"gameday-api-client/{__version__}", "Accept-Encoding": "identity"},
    )


def error_word(error: Exception) -> ErrorWord:
    """Return the log's word for a failure."""
    import httpx  # noqa: PLC0415

    cause: BaseException | None = error
    while cause is not None:
        match cause:
            case ssl.SSLEOFError() | ssl.SSLZeroReturnError():
                return "cut"
            case ssl.SSLError():
                return "tls"
            case httpx.TimeoutException() | TimeoutError():
                return "timeout"
            case ConnectionRefusedError() | httpx.ConnectError() if cause.__cause__ is None:
                return "refused"
            case ConnectionError() | HTTPException() | httpx.RemoteProtocolError():
                return "cut"
        cause = cause.__cause__ or cause.__context__
    return "other"


def retry_after(text: str) -> float | None:
    """Return the pause that a Retry-After asks for, seconds; None if it cannot be read."""
    return float(text) if text.isascii() and text.isdigit() and len(text) <= 6 else None
