"""The event loop that many clients of a load share until they are asked to end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from contextlib import suppress


class ClientLoop:
    """The loop of a load's clients. Only `end` may be called from another thread than `run`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()

    def run(self) -> None:
        """Run every client until `end` is called."""
        try:
            self._loop.run_until_complete(self._run())
        finally:
            self._loop.close()

    def end(self) -> None:
        """End all clients; idempotent."""
        with suppress(RuntimeError):  # they have ended
            self._loop.call_soon_threadsafe(self._ended.set)

    def _clients(self) -> Iterable[Coroutine[None, None, None]]:
        """Return what runs, each until it is cancelled."""
        raise NotImplementedError

    async def _run(self) -> None:
        clients = [asyncio.ensure_future(client) for client in self._clients()]
        await self._ended.wait()
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
