"""A simulated client: it asks for the same LIST round by round, and backs off when the server asks it to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx

from gameday.api_clients.connection import error_word, retry_after
from gameday.api_clients.lists import ListRequest
from gameday.api_clients.request_log import ApiRequest, ErrorWord

MOST_ATTEMPTS = 10
"""A LIST is given up after so many refusals that ask to come again, as client-go does (docs/sources.md)."""
LONGEST_PAUSE_S = 32.0
"""The longest Retry-After that API Priority and Fairness gives; nobody else's is obeyed for longer."""
TIMEOUT = httpx.Timeout(90.0, connect=30.0)
"""Longer than the server's own limit of 60 s for a request, so that the server is seen to give up first."""
_CHUNK_BYTES = 1 << 18
_END_OF_INITIAL_EVENTS = b"k8s.io/initial-events-end"
_SENT = ("http11.send_request_body.complete", "http2.send_request_body.complete")


class StormClient:
    """One client with its connection."""

    def __init__(
        self,
        number: int,
        http: httpx.AsyncClient,
        request: ListRequest,
        sent: Callable[[int], None],
        log: Callable[[ApiRequest], None],
    ) -> None:
        """Take a connection of its own.

        Args:
            number: The client's.
            http: Its connection.
            request: The LIST.
            sent: Is called with the client's number each time a request is wholly sent.
            log: Is called with each request that is over.
        """
        self._number = number
        self._http = http
        self._request = request
        self._sent = sent
        self._log = log
        self._is_watch = "watch" in request.query

    async def run(self, rounds: int) -> None:
        """Ask `rounds` times, one after the other."""
        for number in range(rounds):
            for attempt in range(1, MOST_ATTEMPTS + 1):
                pause_s = asked_to_wait(await self._ask(number, attempt))
                if pause_s is None:
                    break
                await asyncio.sleep(pause_s)

    async def _ask(self, number: int, attempt: int) -> ApiRequest:
        """Send one request, read its answer to the end, and log it. A cancelled one is logged, too."""
        answer = _Answer()
        sent_at, start = datetime.now(UTC), time.monotonic()
        error: ErrorWord = ""
        try:
            await self._read(answer)
        except asyncio.CancelledError:
            error = "ended"
            raise
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as problem:
            error = error_word(problem)
        finally:
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

    async def _read(self, answer: _Answer) -> None:
        async def trace(event: str, _: object) -> None:
            if event in _SENT:
                self._sent(self._number)

        wire = self._http.build_request(
            "GET",
            self._request.path,
            params=self._request.query,
            headers={"Accept": self._request.accept},
            extensions={"trace": trace},
        )
        response = await self._http.send(wire, stream=True)
        try:
            answer.begin(response)
            tail = b""
            async for chunk in response.aiter_raw(_CHUNK_BYTES):
                answer.bytes += len(chunk)
                if self._is_watch and response.status_code == 200:
                    if _END_OF_INITIAL_EVENTS in tail + chunk:
                        return
                    tail = chunk[-len(_END_OF_INITIAL_EVENTS) :]
        finally:
            await response.aclose()


class _Answer:
    """What is known of an answer so far."""

    def __init__(self) -> None:
        self.bytes = 0
        self._first_byte: float | None = None
        self._response: httpx.Response | None = None

    def begin(self, response: httpx.Response) -> None:
        self._first_byte = time.monotonic()
        self._response = response

    def fields(self) -> dict[str, Any]:
        """Return the fields of ApiRequest that the answer fills."""
        if self._response is None or self._first_byte is None:
            return {"first_byte": None, "status": 0, "bytes": 0}
        headers = self._response.headers
        return {
            "first_byte": round(self._first_byte, 6),
            "status": self._response.status_code,
            "bytes": self.bytes,
            "retry_after_s": retry_after(headers),
            "flow_schema": headers.get("X-Kubernetes-PF-FlowSchema-UID", "")[:64],
            "priority_level": headers.get("X-Kubernetes-PF-PriorityLevel-UID", "")[:64],
        }


def asked_to_wait(request: ApiRequest) -> float | None:
    """Return the pause before the same LIST is asked for again; None where it is not.

    As client-go: again only after a 429 or a 5xx that says when; every other failure is the round's end.
    """
    again = request.status == 429 or request.status >= 500
    if not again or request.retry_after_s is None or request.error:
        return None
    return min(request.retry_after_s, LONGEST_PAUSE_S)
