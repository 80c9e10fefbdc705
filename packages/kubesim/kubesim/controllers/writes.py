"""Common writes of the Job and DaemonSet controllers: many at once, remembering those that the watch has not shown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

from kubesim.client import ApiClient, Object
from kubesim.errors import ApiError

MAX_PARALLEL = 16
EXPECTATION_S = 30.0  # a created pod that the watch has not shown by then was never stored, or is gone


async def for_each(things: Iterable[Object], write: Callable[[Object], Awaitable[object]]) -> None:
    """Write for every object, several at once; ignore objects that are gone. Raises the first ApiError, after all."""
    limit = asyncio.Semaphore(MAX_PARALLEL)

    async def one(thing: Object) -> ApiError | None:
        async with limit:
            try:
                await write(thing)
            except ApiError as error:
                return None if error.not_found else error
        return None

    errors = [error for error in await asyncio.gather(*(one(thing) for thing in things)) if error]
    if errors:
        raise errors[0]


async def drop_finalizer(api: ApiClient, path: str, obj: Object, finalizer: str) -> None:
    meta = obj["metadata"]
    rest = [each for each in meta.get("finalizers") or () if each != finalizer]
    await api.patch(path, {"metadata": {"resourceVersion": meta["resourceVersion"], "finalizers": rest}})


class Expectations:
    """Objects that were created but that the watch has not shown yet; a controller must not count without them."""

    def __init__(self) -> None:
        self._awaited: dict[str, dict[str, float]] = {}  # owner uid → child uid → monotonic seconds of giving up

    def expect(self, owner: str, child: str) -> None:
        self._awaited.setdefault(owner, {})[child] = time.monotonic() + EXPECTATION_S

    def settle(self, owner: str, seen: set[str]) -> float | None:
        """Forget the children that arrived; return the seconds until the others are given up, None if none are left."""
        now = time.monotonic()
        awaited = {c: end for c, end in self._awaited.get(owner, {}).items() if c not in seen and end > now}
        if not awaited:
            self._awaited.pop(owner, None)
            return None
        self._awaited[owner] = awaited
        return max(awaited.values()) - now

    def arrived(self, owner: str, child: str) -> None:
        self._awaited.get(owner, {}).pop(child, None)
