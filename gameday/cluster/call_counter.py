"""The number of requests and bytes that a run costs the servers it asks."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class CallCost:
    """The cost of calls to one server: heads and bodies in bytes as sent over the wire, without TLS and TCP."""

    requests: int
    bytes_received: int
    bytes_sent: int
    by_call: dict[str, int]
    """Requests by the name of their call, e.g. `LIST nodes` or `GET api/v1/query`."""
    failed: int = 0
    """Requests to Kubernetes that were unanswered, throttled (429), or failed by the server (5xx)."""


@dataclass
class CallCounter:
    """A counter of calls that threads may share."""

    _requests: Counter[str] = field(default_factory=Counter)
    _failed: int = 0
    _received: int = 0
    _sent: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, call: str, *, sent: int, received: int) -> None:
        """Count one request under the name `call`, with its bytes in both directions."""
        with self._lock:
            self._requests[call] += 1
            self._sent += sent
            self._received += received

    def add_failure(self) -> None:
        """Count a failure of one of the requests that were added."""
        with self._lock:
            self._failed += 1

    def add_bytes(self, received: int) -> None:
        """Count bytes of an answer that is read long after its request was counted, such as a watch."""
        with self._lock:
            self._received += received

    def cost(self) -> CallCost:
        """Return everything counted so far."""
        with self._lock:
            requests = dict(self._requests)
            return CallCost(sum(requests.values()), self._received, self._sent, requests, self._failed)
