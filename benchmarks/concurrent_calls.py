"""Many calls to an API server, a bounded number of them at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable

_AT_ONCE = 16


async def await_all(calls: Iterable[Awaitable[object]]) -> None:
    """Await every call. The iterable makes each only when its turn comes."""
    waiting = iter(calls)

    async def work() -> None:
        for call in waiting:
            await call

    await asyncio.gather(*(work() for _ in range(_AT_ONCE)))
