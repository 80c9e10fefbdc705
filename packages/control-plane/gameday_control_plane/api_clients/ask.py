"""A request of the agent itself, which is not measured: it is sent until the server answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from gameday.api_clients.connection import retry_after
from gameday.errors import HostError
from gameday.values.etcd_full import ETCD_FULL_HINT, is_etcd_full
from gameday_control_plane.api_clients.client import LONGEST_PAUSE_S

if TYPE_CHECKING:
    import httpx

RESTART_S = 30.0
"""About the time in which an API server restarts."""
_PAUSE_S = 0.5
_TOO_MANY = 429


@dataclass(frozen=True)
class Answered:
    """An answer; `size` is the bytes of its body, even if that was not kept."""

    status: int
    body: bytes
    size: int


async def ask(
    http: httpx.AsyncClient,
    method: str,
    path: str,
    *,
    params: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
    fine: tuple[int, ...] = (),
    keep: bool = False,
    within_s: float = RESTART_S,
) -> Answered:
    """Send a request, again and again while the server is away or asks to wait. So it may arrive twice.

    Args:
        http: The connection.
        method: The HTTP verb.
        path: The URL's path.
        params: The query.
        headers: Further headers.
        content: The body, as JSON.
        fine: Statuses that count like a 2xx.
        keep: Keep the answer's body; otherwise it is counted and dropped.
        within_s: Seconds after which no further request is sent.

    Raises:
        HostError: The server refuses, or does not answer in time.
    """
    import httpx  # noqa: PLC0415

    deadline = time.monotonic() + within_s
    headers = {"Content-Type": "application/json"} | dict(headers or {})
    while True:
        try:
            async with http.stream(method, path, params=params, headers=headers, content=content) as response:
                kept, size, error = [], 0, response.status_code >= 400
                async for chunk in response.aiter_raw():
                    size += len(chunk)
                    if keep or (error and size < 4096):
                        kept.append(chunk)
            answer = Answered(response.status_code, b"".join(kept), size)
            pause_s = retry_after(response.headers.get("Retry-After", ""))
            problem = f"HTTP {answer.status}: {_message(answer.body)}"
        except (httpx.HTTPError, OSError) as failure:
            answer, pause_s, problem = None, None, str(failure) or type(failure).__name__
        if answer is not None and (answer.status < 400 or answer.status in fine):
            return answer
        full = answer is not None and is_etcd_full(problem)
        if full:
            problem = f"{problem}; {ETCD_FULL_HINT}"
        again = answer is None or answer.status == _TOO_MANY or (answer.status >= 500 and not full)
        pause_s = min(_PAUSE_S if pause_s is None else pause_s, LONGEST_PAUSE_S)
        if not again or time.monotonic() + pause_s > deadline:
            raise HostError(f"{method} {path}: {problem}")
        await asyncio.sleep(pause_s)


def _message(body: bytes) -> str:
    """Return the message of a Kubernetes Status, at most 300 characters."""
    try:
        message = orjson.loads(body).get("message", "")
    except (orjson.JSONDecodeError, AttributeError):
        message = body.decode("utf-8", "replace")
    return " ".join(str(message).split())[:300]
