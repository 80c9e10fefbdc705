"""One client's connection to the API server, without anything that hides a failure."""

from __future__ import annotations

import ssl
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

import httpx

from gameday import __version__
from gameday.api_clients.request_log import ErrorWord
from gameday.errors import HostError
from gameday.host.base import ApiServer

Headers = Sequence[tuple[str, str]]


class TokenFile(httpx.Auth):
    """The token of a service account, read anew for each request: the kubelet renews it in place."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Put the token into a request. Raises OSError."""
        request.headers["Authorization"] = f"Bearer {self._path.read_text(encoding='utf-8').strip()}"
        yield request


def tls_context(server: ApiServer) -> ssl.SSLContext:
    """Return a context that trusts the API server's authority and nobody else. Raises HostError."""
    try:
        return ssl.create_default_context(cafile=server.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise HostError(f"{server.ca_file} is no certificate authority: {error.strerror}") from None


def open_connection(
    server: ApiServer, tls: ssl.SSLContext, timeout: httpx.Timeout, headers: Headers = (), connections: int = 1
) -> httpx.AsyncClient:
    """Return a client with connections of its own, without retries, redirects or a proxy.

    Bodies are asked for uncompressed: the server compresses what is above 128 KiB, and that would be its CPU and not
    the LIST's.

    HTTP/1.1: each simulated client has its connection to itself, and reading 50 MB through h2's windows in Python
    would cost more than the server's part.
    """
    return httpx.AsyncClient(
        base_url=server.url,
        auth=TokenFile(server.token_file),
        verify=tls,
        timeout=timeout,
        trust_env=False,
        limits=httpx.Limits(max_connections=connections),
        headers=[("User-Agent", f"gameday-api-client/{__version__}"), ("Accept-Encoding", "identity"), *headers],
    )


def error_word(error: Exception) -> ErrorWord:
    """Return a failure's word for the log."""
    if _is_tls(error):
        return "tls"
    match error:
        case httpx.TimeoutException() | TimeoutError():
            return "timeout"
        case httpx.ConnectError():
            return "refused"
        case httpx.RemoteProtocolError() | httpx.ReadError() | httpx.WriteError() | httpx.CloseError():
            return "cut"
    return "other"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the pause that the server asks for, seconds; None where it asks for none that can be read."""
    text = headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) <= 6 else None


def _is_tls(error: BaseException | None) -> bool:
    """Return whether a failure, or one that it came from, is TLS's own and not the end of the connection."""
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)
        error = error.__cause__ or error.__context__
    return False
