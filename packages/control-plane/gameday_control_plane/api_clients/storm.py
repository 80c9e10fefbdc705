"""Many clients that LIST at the same time, in processes that die with the agent."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from gameday_control_plane.api_clients.order import ClientsLine, ClientsOrder, ListOrder, OwnCost
from gameday_control_plane.api_clients.process import ClientProcess
from gameday_control_plane.values.api_requests import ApiRequest

CLIENTS_IN_A_PROCESS = 16
"""Clients that one process serves: it reads 420 MB/s on one core, so that the server is the first to hold them back."""
_MODULE = "gameday_control_plane.api_clients"
_END_TIMEOUT_S = 10.0
_LOOK_EVERY_S = 0.05


class Storm:
    """A running storm, with a thread for each of its processes."""

    def __init__(self, order: ListOrder, clients: int) -> None:
        """Start the processes and wait until all clients are ready; they send nothing yet.

        Raises:
            HostError: A process cannot be started, or ends at once.
        """
        self.clients = clients
        self._lock = threading.Lock()
        self._requests: list[ApiRequest] = []
        self._taken = 0
        self._sent: set[int] = set()
        self._cost = OwnCost(cpu_seconds=0, rss_bytes=0)
        self._processes: list[ClientProcess[ClientsLine]] = []
        try:
            for first in range(0, clients, CLIENTS_IN_A_PROCESS):
                numbers = tuple(range(first, min(first + CLIENTS_IN_A_PROCESS, clients)))
                self._processes.append(
                    ClientProcess(_MODULE, ClientsOrder(lists=order, clients=numbers), ClientsLine, self._hear)
                )
            for process in self._processes:
                process.wait_ready()
        except BaseException:
            self.end()
            raise

    def begin(self) -> None:
        """Let all clients begin. Raises HostError if a process is gone."""
        for process in self._processes:
            process.go()

    @property
    def all_sent(self) -> bool:
        """True if every client has sent its first request, or has failed to."""
        with self._lock:
            return len(self._sent | {request.client for request in self._requests}) == self.clients

    @property
    def is_over(self) -> bool:
        """True if every process has ended by itself, so that all rounds are done."""
        return all(process.is_over for process in self._processes)

    def take(self) -> Sequence[ApiRequest]:
        """Return the requests that have ended since the last call."""
        with self._lock:
            new, self._taken = self._requests[self._taken :], len(self._requests)
        return new

    @property
    def requests(self) -> tuple[ApiRequest, ...]:
        """All requests that have ended."""
        with self._lock:
            return tuple(self._requests)

    @property
    def cost(self) -> OwnCost:
        """The cost of the ended processes, without any that had to be killed."""
        with self._lock:
            return self._cost

    @property
    def failed(self) -> int:
        """Number of processes that ended without their last line."""
        return sum(process.has_failed for process in self._processes)

    def end(self) -> None:
        """End all clients, even in mid-request; idempotent."""
        for process in self._processes:
            process.ask_to_end()
        deadline = time.monotonic() + _END_TIMEOUT_S
        for process in self._processes:
            process.end(max(0.1, deadline - time.monotonic()))

    def _hear(self, line: ClientsLine) -> None:
        with self._lock:
            if line.sent is not None:
                self._sent.add(line.sent)
            if line.request is not None:
                self._requests.append(line.request)
            if line.cost is not None:
                self._cost += line.cost


def wait_until_sent(storm: Storm, timeout_s: float) -> bool:
    """Wait until every client has sent a request; return True if all have in time."""
    deadline = time.monotonic() + timeout_s
    while not storm.all_sent:
        if time.monotonic() > deadline or storm.is_over:
            return storm.all_sent
        time.sleep(_LOOK_EVERY_S)
    return True
