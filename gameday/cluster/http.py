"""One way to speak HTTP to the observability servers: time-outs, retries, credentials, counting, errors.

The adapters for Prometheus, Alertmanager and Loki differ in what they ask,
not in how: each holds one `HttpServer`. Only GET is retried, because only GET
is safe to repeat. What a run costs these servers is counted here, at the
transport, so that retries count too.
"""

from __future__ import annotations

import os
import ssl
import threading
from base64 import b64encode
from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import tenacity
from pydantic import TypeAdapter, ValidationError

from gameday.cluster.profile import Endpoint
from gameday.errors import AdapterError

_ATTEMPTS = 4
# First pause 0.2 s, doubled and jittered up to 5 s: four attempts span about 2 s of a server restarting.
_BACK_OFF = tenacity.wait_random_exponential(multiplier=0.2, max=5)
# A server that asks for a longer pause than this is reported, not waited for: the caller has its own deadline.
_LONGEST_RETRY_AFTER_S = 30.0
_TRANSIENT = frozenset({429, 502, 503, 504})
_CONNECT_TIMEOUT_S = 3.0
# An answer beyond this is refused rather than held in memory (our aim for a whole run is 200 MB, docs/measured.md).
_LARGEST_ANSWER = 64 * 1024 * 1024
_EXCERPT = 200

M = TypeVar("M")


@dataclass(frozen=True)
class CallCost:
    """What calls cost a server: heads and bodies as they went over the wire, without TLS and TCP."""

    requests: int
    bytes_received: int
    bytes_sent: int
    by_call: dict[str, int]
    failed: int = 0
    """Of the requests to Kubernetes: unanswered, throttled (429), or failed by the server (5xx)."""


@dataclass
class CallCounter:
    """Counts calls; shared by threads."""

    _requests: Counter[str] = field(default_factory=Counter)
    _failed: int = 0
    _received: int = 0
    _sent: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, call: str, *, sent: int, received: int) -> None:
        with self._lock:
            self._requests[call] += 1
            self._sent += sent
            self._received += received

    def fail(self) -> None:
        """One of the requests added came to nothing."""
        with self._lock:
            self._failed += 1

    def add_bytes(self, received: int) -> None:
        """Bytes of an answer that is read long after its request was counted, as a watch is."""
        with self._lock:
            self._received += received

    def cost(self) -> CallCost:
        with self._lock:
            requests = dict(self._requests)
            return CallCost(sum(requests.values()), self._received, self._sent, requests, self._failed)


class _Credentials(httpx.Auth):
    """Resolves an endpoint's references for every request, so that rotated tokens are picked up."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        endpoint = self._endpoint
        token = self._secret("bearer_token", endpoint.bearer_token_file, endpoint.bearer_token_env)
        password = self._secret("password", endpoint.password_file, endpoint.password_env)
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token}"
        elif endpoint.username is not None and password is not None:
            pair = b64encode(f"{endpoint.username}:{password}".encode()).decode()
            request.headers["Authorization"] = f"Basic {pair}"
        yield request

    def _secret(self, what: str, file: Path | None, variable: str | None) -> str | None:
        if variable is not None and not os.environ.get(variable):
            raise AdapterError(self._endpoint.url, f"{what}_env: ${variable} is not set", "export it before the run")
        if variable is not None:
            return os.environ[variable]
        if file is None:
            return None
        try:
            secret = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise AdapterError(
                self._endpoint.url, f"{what}_file {file}: {reason}", "correct the path in the cluster profile"
            ) from None
        if not secret.isprintable() or not secret.isascii():
            raise AdapterError(
                self._endpoint.url,
                f"{what}_file {file} holds more than one line of printable ASCII",
                "write only the secret into it",
            )
        return secret


class HttpServer:
    """A server behind an `Endpoint`. `client` is for what this class does not cover (streams, websockets)."""

    def __init__(self, endpoint: Endpoint, counter: CallCounter) -> None:
        self.endpoint = endpoint
        self.counter = counter
        headers = {"User-Agent": "gpu-gameday", "Accept": "application/json"}
        if endpoint.tenant:
            headers["X-Scope-OrgID"] = endpoint.tenant
        self.client = httpx.Client(
            base_url=endpoint.url + "/",
            auth=_Credentials(endpoint),
            headers=headers,
            timeout=httpx.Timeout(endpoint.timeout_s, connect=min(_CONNECT_TIMEOUT_S, endpoint.timeout_s)),
            verify=_trust(endpoint),
            # A proxy of the environment must not stand between us and a server on this machine.
            trust_env=not _is_loopback(endpoint.url),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.client.close()

    def get(self, path: str, params: Mapping[str, Any] | None = None, *, call: str | None = None) -> bytes:
        """The body of a 2xx answer. `call` is the name it is counted under (default: `GET <path>`).

        Retries what may pass by itself; raises AdapterError for everything else.
        """
        retry = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_may_pass),
            wait=_wait,
            stop=tenacity.stop_after_attempt(_ATTEMPTS),
            reraise=True,
        )
        try:
            return bytes(retry(self._send, "GET", path, params, None, call or f"GET {path}"))
        except httpx.HTTPError as error:
            raise explain(error, self.endpoint, path) from None

    def post(self, path: str, body: object, *, call: str | None = None) -> bytes:
        """Send JSON once, without a retry; the body of a 2xx answer. Raises AdapterError."""
        try:
            return self._send("POST", path, None, body, call or f"POST {path}")
        except httpx.HTTPError as error:
            raise explain(error, self.endpoint, path) from None

    def get_as(
        self, shape: type[M], path: str, params: Mapping[str, Any] | None = None, *, call: str | None = None
    ) -> M:
        """The JSON of a 2xx answer as `shape` (a pydantic type, also `list[Model]`); raises AdapterError."""
        body = self.get(path, params, call=call)
        try:
            return TypeAdapter(shape).validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            at = ".".join(str(part) for part in first["loc"])
            what = f"{at}: {first['msg']}" if at else first["msg"]
            raise self.error(
                path,
                f"the answer is not what this server should say ({what}): {_excerpt(body)}",
                "check that the URL is the server's own, not another service's or a login page's",
            ) from None

    def error(self, path: str, cause: str, hint: str = "", status: int | None = None) -> AdapterError:
        """An AdapterError about one of this server's paths."""
        return AdapterError(f"{self.endpoint.url}/{path.lstrip('/')}", cause, hint, status)

    def _send(self, method: str, path: str, params: Mapping[str, Any] | None, body: object, call: str) -> bytes:
        request = self.client.build_request(method, path.lstrip("/"), params=params, json=body)
        received = 0
        response = None
        try:
            response = self.client.send(request, stream=True)
            content = bytearray()
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > _LARGEST_ANSWER:
                    raise self.error(path, f"the answer is larger than {_LARGEST_ANSWER >> 20} MiB", "ask for less")
            received = _head_size(response.headers) + response.num_bytes_downloaded
        finally:
            self.counter.add(call, sent=_request_size(request), received=received)
            if response is not None:
                response.close()
        if not response.is_success:
            raise httpx.HTTPStatusError(_excerpt(bytes(content)), request=request, response=response)
        return bytes(content)


def open_http(endpoint: Endpoint, counter: CallCounter | None = None) -> HttpServer:
    """A server to ask; close it, or use it as a context manager. Raises AdapterError for an unusable ca_file."""
    return HttpServer(endpoint, counter or CallCounter())


def explain(error: httpx.HTTPError, endpoint: Endpoint, path: str) -> AdapterError:
    """What happened and what to do about it, as an AdapterError about `path` of `endpoint`."""
    url = f"{endpoint.url}/{path.lstrip('/')}"
    if isinstance(error, httpx.HTTPStatusError):
        status = error.response.status_code
        return AdapterError(url, f"{status}: {error.args[0]}", _status_hint(status, endpoint, error.response), status)
    if isinstance(error, httpx.ConnectTimeout):
        return AdapterError(url, "no connection in time", "check address, network and firewall")
    if isinstance(error, httpx.TimeoutException):
        return AdapterError(url, f"no answer within {endpoint.timeout_s:g} s", "is it overloaded? raise timeout_s")
    root: BaseException = error
    while (deeper := root.__cause__ or root.__context__) is not None:
        root = deeper
    if isinstance(root, ssl.SSLCertVerificationError):
        return AdapterError(url, f"certificate not trusted: {root.verify_message}", "set ca_file to its CA bundle")
    if isinstance(root, ConnectionRefusedError):
        return AdapterError(url, "connection refused", "is it running, and is the port right?")
    cause = root.strerror if isinstance(root, OSError) and root.strerror else str(root) or type(root).__name__
    return AdapterError(url, cause.lower(), "check the URL in the cluster profile and that the server runs")


def _status_hint(status: int, endpoint: Endpoint, response: httpx.Response) -> str:
    reference = endpoint.bearer_token_file or endpoint.bearer_token_env or endpoint.password_file
    reference = reference or endpoint.password_env
    if status in (401, 403):
        return f"check the credentials in {reference}" if reference else "the cluster profile gives no credentials"
    if status == 404:
        return "check the path in the URL of the cluster profile"
    if status == 429:
        return f"it asks for less load (Retry-After: {response.headers.get('Retry-After', 'none')})"
    if response.is_redirect:
        return "set the URL of the cluster profile to where it redirects, if that is not a login page"
    return "see the server's own log" if status >= 500 else ""


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code in _TRANSIENT and (_retry_after(error) or 0.0) <= _LONGEST_RETRY_AFTER_S
    if isinstance(error, httpx.ReadTimeout):
        return False  # it had its whole time-out; asking again only adds to its load
    return isinstance(error, httpx.TransportError) and not isinstance(error, httpx.UnsupportedProtocol)


def _retry_after(error: BaseException | None) -> float | None:
    """Seconds the server asked us to stay away, from either form of the header (RFC 9110 10.2.3)."""
    if not isinstance(error, httpx.HTTPStatusError):
        return None
    value = error.response.headers.get("Retry-After", "").strip()
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def _wait(state: tenacity.RetryCallState) -> float:
    asked = _retry_after(state.outcome.exception()) if state.outcome else None
    return _BACK_OFF(state) if asked is None else asked + _BACK_OFF(state)


def _trust(endpoint: Endpoint) -> ssl.SSLContext | bool:
    if endpoint.ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(endpoint.ca_file))
    except (OSError, ssl.SSLError) as error:
        raise AdapterError(
            endpoint.url, f"ca_file {endpoint.ca_file}: {error.strerror or error}", "it must be a PEM bundle"
        ) from None


def _is_loopback(url: str) -> bool:
    host = httpx.URL(url).host
    return host in ("localhost", "::1") or host.startswith("127.")


def _head_size(headers: httpx.Headers) -> int:
    return sum(len(name) + len(value) + 4 for name, value in headers.raw) + 2


def _request_size(request: httpx.Request) -> int:
    line = len(request.method) + len(request.url.raw_path) + len(" HTTP/1.1\r\n") + 1
    return line + _head_size(request.headers) + len(request.content)


def _excerpt(body: bytes) -> str:
    """The beginning of a body as one printable line: what a server says is hostile input."""
    text = body[: _EXCERPT * 4].decode("utf-8", "replace")
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return (line[:_EXCERPT] + "…" if len(line) > _EXCERPT else line) or "empty body"
