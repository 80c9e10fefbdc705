"""The official Kubernetes client with counting, time-outs and honest retries.

The cost of a game-day to the API server is counted here, below every call of the client, watches included, so that the
report cannot miss one.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from typing import Any, Self

import urllib3
from kubernetes import client
from kubernetes.client import rest
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import ProtocolError, SSLError
from urllib3.response import BaseHTTPResponse

from gameday import __version__
from gameday.clock import Clock
from gameday.cluster.back_off import pause_s
from gameday.cluster.call_counter import CallCounter
from gameday.cluster.kube_errors import is_store_away
from gameday.cluster.kubeconfig import load_configuration
from gameday.cluster.profile import ClusterProfile


class ApiRetry(urllib3.Retry):
    """The library's policy, except that a TLS connection which ends during a request counts as a lost answer.

    urllib3 never repeats after a TLS error. That is right for a wrong certificate, but wrong for a killed server:
    OpenSSL may report its end before the socket does.
    """

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: BaseHTTPResponse | None = None,
        error: Exception | None = None,
        *where: Any,
        **named: Any,
    ) -> Self:
        if isinstance(error, SSLError) and isinstance(error.args[0], ssl.SSLEOFError | ssl.SSLZeroReturnError):
            error = ProtocolError("Connection aborted.", error)
        return super().increment(method, url, response, error, *where, **named)


# Seconds to connect, including the slow TLS handshake of a starting server, and to wait for the next byte.
_TIMEOUTS_S = (5.0, 15.0)
# After a refused connection any verb is safe to repeat, because nothing was sent. After a lost answer only harmless
# requests are repeated: our patches either set a value or carry the version they were made from, and our deletes name
# their object. Six tries, 0.2 s doubling to 3 s, cover about 6 s of a restarting API server. The server itself asks for
# pauses of 1 to 32 s; without the bound, urllib3 would sleep six hours for a proxy.
_HARMLESS_TWICE = frozenset({"GET", "PATCH", "DELETE"})
_RETRIES = ApiRetry(
    connect=6,
    read=4,
    status=4,
    redirect=0,
    other=0,
    backoff_factor=0.2,
    backoff_max=3.0,
    backoff_jitter=0.2,
    status_forcelist=(429, 502, 503, 504),
    allowed_methods=_HARMLESS_TWICE,
    respect_retry_after_header=True,
    retry_after_max=32,
    raise_on_status=False,
)
# As for a lost answer: gameday.cluster.creation does it for POST.
_STORE_TRIES, _STORE_FIRST_PAUSE_S, _STORE_LONGEST_PAUSE_S = 6, 0.2, 3.0
# An API server that has just started answers before it knows its roles, and forbids everything until then; a load
# balancer would ask /readyz first. Measured here: 1 to 3 s, on two busy cores.
_MAYBE_NOT_READY = (401, 403)
_THROTTLED, _SERVER_ERROR = 429, 500
_UNREADY = (401, 403, 500, 503)
_READY_WITHIN_S = 15.0
_READY_PAUSE_S = 0.5
_PATH = re.compile(
    r"/apis?/(?:[^/]+/)?v\d\w*/(?:namespaces/[^/]+/(?=[^/]))?(?P<resource>[a-z]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[a-z]+))?)?$"
)


def connect(profile: ClusterProfile, counter: CallCounter, clock: Clock) -> client.ApiClient:
    """Return an API client for the profile's cluster. Raises AdapterError if no configuration can be loaded."""
    content = profile.kubeconfig_content
    configuration = load_configuration(profile.kubeconfig, profile.context, profile.in_cluster, content)
    configuration.retries = _RETRIES
    api = client.ApiClient(configuration)
    api.user_agent = f"gameday/{__version__}"
    api.rest_client = _CountingRest(configuration, counter, clock)
    return api


def send(
    api: client.ApiClient,
    method: str,
    path: str,
    *,
    query: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    body: object = None,
    timeouts_s: tuple[float, float] | None = None,
) -> Any:
    """Send one request without the client's typed methods; their import and models cost more than a plain read.

    Args:
        api: The client to send it through.
        method: The HTTP verb.
        path: The URL's path, quoted.
        query: Parameters by their names on the wire.
        headers: Headers besides the client's own.
        body: Sent as JSON.
        timeouts_s: Seconds to connect and to wait for the next byte; None for the transport's own.

    Returns:
        The 2xx response, unread (urllib3.HTTPResponse).

    Raises:
        ApiException: The server refuses.
        urllib3.exceptions.HTTPError: The server does not answer.
    """
    prepared = api.param_serialize(
        method,
        path,
        query_params=list((query or {}).items()),
        header_params={"Accept": "application/json"} | dict(headers or {}),
        body=body,
        auth_settings=["BearerToken"],
    )
    answer = api.call_api(*prepared, _request_timeout=timeouts_s)
    if not 200 <= answer.status < 300:
        raise ApiException(http_resp=answer, body=answer.read().decode("utf-8", "replace"))
    return answer.response


def call_name(method: str, url: str) -> str:
    """Return the name under which a request is counted, e.g. 'LIST nodes' or 'PATCH nodes/status'."""
    path, _, query = url.partition("?")
    found = _PATH.search(path)
    if not found:
        return f"{method} {path.rstrip('/').rsplit('/', 1)[-1]}"
    resource = found["resource"] + (f"/{found['sub']}" if found["sub"] else "")
    if method == "GET" and not found["name"]:
        return f"{'WATCH' if 'watch=' in query.lower() else 'LIST'} {resource}"
    return f"{method} {resource}"


class _CountingRest(rest.RESTClientObject):  # type: ignore[misc]
    """The client's transport; it counts requests when they are made, and bytes as they are read."""

    def __init__(self, configuration: Any, counter: CallCounter, clock: Clock) -> None:
        super().__init__(configuration)
        self._clock = clock
        self._counter = counter
        self._readyz_is_forbidden = False

    def request(
        self,
        method: str,
        url: str,
        headers: Any = None,
        body: Any = None,
        post_params: Any = None,
        _request_timeout: Any = None,
    ) -> Any:
        call = call_name(method, url)
        timeout = _request_timeout or _TIMEOUTS_S
        sent = len(url) + (len(str(body)) if body is not None else 0)

        def ask() -> Any:
            return self._ask(call, sent, method, url, headers, body, post_params, timeout)

        try:
            answer = ask()
        except Exception:
            self._counter.add_failure()
            raise
        if any(status == _THROTTLED or status >= _SERVER_ERROR for status in (*_refusals(answer), answer.status)):
            self._counter.add_failure()
        if answer.status in _MAYBE_NOT_READY:
            answer.response.drain_conn()
            self._await_ready(url)
            answer = ask()
        answer.response = _CountedResponse(answer.response, self._counter)
        return answer

    def _ask(self, call: str, sent: int, method: str, *request: Any) -> Any:
        """Send a request, repeated while the server's store is away, and count it under this name each time."""
        for failures in range(1, _STORE_TRIES + 1):
            self._counter.add(call, sent=sent, received=0)
            answer = super().request(method, *request)
            for _ in _refusals(answer):
                self._counter.add(call, sent=sent, received=0)
            if method not in _HARMLESS_TWICE or answer.status != _SERVER_ERROR or failures == _STORE_TRIES:
                break
            if not is_store_away(answer.status, answer.response.data.decode("utf-8", "replace")):
                break
            self._clock.sleep(pause_s(failures, _STORE_FIRST_PAUSE_S, _STORE_LONGEST_PAUSE_S))
        return answer

    def _await_ready(self, url: str) -> None:
        """Wait until the server of this URL says that it is ready, or _READY_WITHIN_S have passed.

        The request carries no token, because a server that lets anybody ask would refuse a wrong one for ever. If
        /readyz stays forbidden, later requests do not wait for it.
        """
        if self._readyz_is_forbidden:
            return
        parts = urllib3.util.parse_url(url)
        readyz = urllib3.util.Url(parts.scheme, None, parts.host, parts.port, "/readyz").url
        deadline = self._clock.monotonic() + _READY_WITHIN_S
        while True:
            answer = self._ask("GET readyz", len(readyz), "GET", readyz, None, None, None, _TIMEOUTS_S)
            answer.response.drain_conn()
            if answer.status not in _UNREADY:
                return
            if self._clock.monotonic() > deadline:
                self._readyz_is_forbidden = answer.status in _MAYBE_NOT_READY
                return
            self._clock.sleep(_READY_PAUSE_S)


def _refusals(answer: Any) -> list[int]:
    """Return the statuses after which the transport asked again, before the final answer."""
    history = answer.response.retries.history if answer.response.retries else ()
    return [attempt.status for attempt in history if attempt.status]


class _CountedResponse:
    """A urllib3 response that counts the bytes read from it and passes on everything else."""

    def __init__(self, response: Any, counter: CallCounter) -> None:
        self._response = response
        self._counter = counter
        self._counted = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._response, name)

    @property
    def data(self) -> bytes:
        content: bytes = self._response.data
        if not self._counted:
            self._counted = True
            self._counter.add_bytes(len(content))
        return content

    def stream(self, *arguments: Any, **options: Any) -> Iterator[bytes]:
        for chunk in self._response.stream(*arguments, **options):
            self._counter.add_bytes(len(chunk))
            yield chunk
