"""Attempts of one HTTP request: which failures are tried again, after which pause, and the count of each."""

from __future__ import annotations

import logging
import time

import httpx
from httpx_retries import Retry, RetryTransport

from gameday.cluster.call_counter import CallCounter
from gameday.cluster.http_errors import status_error
from gameday.errors import AdapterError

# The library logs a Retry-After that it cannot read; a server's text does not belong on our terminal.
logging.getLogger("httpx_retries").setLevel(logging.ERROR)

CALL = "gameday.call"
"""Key of the request's extension with the name under which its attempts are counted."""

_RETRIES = 3
# Pauses of at most 0.2 s, 0.4 s and 0.8 s, with full jitter; the library doubles this before the first.
_BACK_OFF_S = 0.1
# A server that asks for a longer pause is reported, not waited for: the caller has its own deadline.
_LONGEST_RETRY_AFTER_S = 30.0
# Not httpx.ReadTimeout: the server had the whole time-out, and asking again only adds to its load.
_TRANSIENT_ERRORS = (
    httpx.ConnectTimeout,
    httpx.WriteTimeout,
    httpx.PoolTimeout,
    httpx.NetworkError,
    httpx.RemoteProtocolError,
    httpx.ProxyError,
)
# A larger answer is refused instead of held in memory: a whole run takes about 300 MB (docs/measured.md).
_LARGEST_ANSWER_BYTES = 64 * 1024 * 1024
# Headers that describe the body on the wire, which is decoded here.
_WIRE_HEADERS = frozenset({"content-encoding", "content-length", "transfer-encoding"})


def retrying(client: httpx.Client, counter: CallCounter) -> RetryTransport:
    """Return a transport that sends requests through `client` and repeats a GET if that may help.

    It sends at most four times, and returns the last answer, of any status, with its body read.
    """
    retry = _JitteredRetry(
        total=_RETRIES,
        allowed_methods=("GET",),
        status_forcelist=(429, 502, 503, 504),
        retry_on_exceptions=_TRANSIENT_ERRORS,
        backoff_factor=_BACK_OFF_S,
        max_backoff_wait=_LONGEST_RETRY_AFTER_S,
    )
    return RetryTransport(_Attempts(client, counter), retry)


class _JitteredRetry(Retry):
    """The library's policy, but with jitter on a Retry-After, and a longer one is reported instead of cut short."""

    def sleep(self, response: httpx.Response | Exception) -> None:
        asked_s = self._asked_s(response) if isinstance(response, httpx.Response) else 0.0
        if isinstance(response, httpx.Response) and asked_s > self.max_backoff_wait:
            raise status_error(response)
        # By the machine's clock: the library makes a new policy for every attempt, with only its own arguments.
        time.sleep(asked_s + self.backoff_strategy())

    def _asked_s(self, response: httpx.Response) -> float:
        try:
            return self.parse_retry_after(response.headers.get("Retry-After", ""))
        except (ValueError, OverflowError):  # missing, or not a time in either form of RFC 9110 10.2.3
            return 0.0


class _Attempts(httpx.BaseTransport):
    """A transport that sends each attempt through the client, reads the answer to its end, and counts both.

    The client is below the retries, not above them: only it knows the environment's proxies, and it reads rotated
    credentials for every attempt. An answer that breaks off half way fails here, so that it is requested again.
    """

    def __init__(self, client: httpx.Client, counter: CallCounter) -> None:
        self._client = client
        self._counter = counter

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        received = 0
        response = None
        try:
            response = self._client.send(request, stream=True)
            body = _read(response)
            received = _head_size(response.headers) + response.num_bytes_downloaded
        finally:
            self._counter.add(request.extensions[CALL], sent=_request_size(request), received=received)
            if response is not None:
                response.close()
        headers = [(name, value) for name, value in response.headers.multi_items() if name not in _WIRE_HEADERS]
        return httpx.Response(response.status_code, headers=headers, content=body, request=request)

    def close(self) -> None:
        self._client.close()


def _read(response: httpx.Response) -> bytes:
    content = bytearray()
    for chunk in response.iter_bytes():
        content += chunk
        if len(content) > _LARGEST_ANSWER_BYTES:
            url = str(response.url.copy_with(query=None))
            raise AdapterError(url, f"the answer is larger than {_LARGEST_ANSWER_BYTES >> 20} MiB", "ask for less")
    return bytes(content)


def _head_size(headers: httpx.Headers) -> int:
    return sum(len(name) + len(value) + 4 for name, value in headers.raw) + 2


def _request_size(request: httpx.Request) -> int:
    line = len(request.method) + len(request.url.raw_path) + len(" HTTP/1.1\r\n") + 1
    return line + _head_size(request.headers) + len(request.content)
