"""`python -m gameday.api_clients`: a process with some clients of a storm.

The first line on standard input is a ClientsOrder; the clients begin at the second line. When standard input ends, the
agent has died or ends the storm, and the clients end in mid-request. Every line on standard output is a ClientsLine.
"""

from __future__ import annotations

import random
import resource
import sys
import threading
from contextlib import suppress

from gameday.api_clients.connection import tls_context
from gameday_control_plane.api_clients.client import StormClient
from gameday_control_plane.api_clients.lists import list_request
from gameday_control_plane.api_clients.order import ClientsLine, ClientsOrder, OwnCost

_SAYING = threading.Lock()


def main() -> int:
    """Run the clients, and return the exit status."""
    order = ClientsOrder.model_validate_json(sys.stdin.readline())
    clients = _clients(order)
    _say(ClientsLine(ready=True))
    sys.stdin.readline()
    threads = [
        threading.Thread(target=client.run, args=(order.lists.rounds, start_after_s(number, order.lists.starts_over_s)))
        for client, number in zip(clients, order.clients, strict=True)
    ]
    for thread in threads:
        thread.start()
    # A daemon thread: otherwise it would keep the process alive after its clients are done.
    threading.Thread(target=_end_with_standard_input, args=(clients,), daemon=True).start()
    for thread in threads:
        thread.join()
    _say(ClientsLine(cost=own_cost()))
    return 0


def start_after_s(client: int, over_s: float) -> float:
    """Return the seconds after which a client begins: random within a time, but the same in every run."""
    return random.Random(client).uniform(0, over_s)  # noqa: S311 - jitter, and no secret


def own_cost() -> OwnCost:
    """Return the cost of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    # Linux gives the most resident memory in KiB (man 2 getrusage).
    return OwnCost(cpu_seconds=round(used.ru_utime + used.ru_stime, 3), rss_bytes=used.ru_maxrss * 1024)


def _clients(order: ClientsOrder) -> list[StormClient]:
    lists = order.lists
    request = list_request(lists.resource, lists.form, lists.read, lists.resource_version)
    tls = tls_context(lists.server)
    return [
        StormClient(
            number,
            lists.server,
            tls,
            request,
            lists.headers,
            lambda client: _say(ClientsLine(sent=client)),
            lambda done: _say(ClientsLine(request=done)),
        )
        for number in order.clients
    ]


def _end_with_standard_input(clients: list[StormClient]) -> None:
    while sys.stdin.readline():
        pass
    for client in clients:
        client.end()


def _say(line: ClientsLine) -> None:
    # A broken pipe: the agent is gone, and the clients end with standard input.
    with _SAYING, suppress(BrokenPipeError):
        print(line.model_dump_json(exclude_defaults=True), flush=True)


if __name__ == "__main__":
    sys.exit(main())
