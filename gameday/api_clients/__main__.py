"""`python -m gameday.api_clients`: a process with some clients of a storm.

The first line on standard input is a ClientsOrder; the clients begin at the second line. When standard input ends, the
agent is dead or ends the storm: the clients then end in mid-request. Every line on standard output is a ClientsLine.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import threading
from contextlib import AsyncExitStack

from gameday.api_clients.client import TIMEOUT, StormClient
from gameday.api_clients.connection import open_connection, tls_context
from gameday.api_clients.lists import list_request
from gameday.api_clients.order import ClientsLine, ClientsOrder, OwnCost


def main() -> int:
    """Run the clients, and return the exit status."""
    order = ClientsOrder.model_validate_json(sys.stdin.readline())
    try:
        asyncio.run(_run(order))
        _say(ClientsLine(cost=own_cost()))
    except BrokenPipeError:
        # The agent is gone. Python would try to flush standard output once more at its end.
        sys.stdout = None
        return 1
    return 0


def own_cost() -> OwnCost:
    """Return what this process has cost up to now."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    # Linux gives the most resident memory in KiB (man 2 getrusage).
    return OwnCost(cpu_seconds=round(used.ru_utime + used.ru_stime, 3), rss_bytes=used.ru_maxrss * 1024)


async def _run(order: ClientsOrder) -> None:
    lists = order.lists
    request = list_request(lists.resource, lists.form, lists.read, lists.resource_version)
    tls = tls_context(lists.server)
    async with AsyncExitStack() as stack:
        clients = [
            StormClient(
                number,
                await stack.enter_async_context(open_connection(lists.server, tls, TIMEOUT, lists.headers)),
                request,
                lambda client: _say(ClientsLine(sent=client)),
                lambda done: _say(ClientsLine(request=done)),
            )
            for number in order.clients
        ]
        _say(ClientsLine(ready=True))
        await asyncio.to_thread(sys.stdin.readline)
        await _until_done_or_ended([asyncio.create_task(client.run(lists.rounds)) for client in clients])


async def _until_done_or_ended(tasks: list[asyncio.Task[None]]) -> None:
    ended, loop = asyncio.Event(), asyncio.get_running_loop()

    def wait_for_end() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(ended.set)

    # A daemon: it would otherwise keep a process alive whose clients are done.
    threading.Thread(target=wait_for_end, daemon=True).start()
    end = asyncio.create_task(ended.wait())
    everyone = asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.wait((everyone, end), return_when=asyncio.FIRST_COMPLETED)
    for task in (*tasks, end):
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result


def _say(line: ClientsLine) -> None:
    print(line.model_dump_json(exclude_defaults=True), flush=True)


if __name__ == "__main__":
    sys.exit(main())
