"""The dmesg shipper of all nodes: kernel-log lines to Loki's push API, in batches; none is lost while Loki is away.

Stream labels are those that Konduktor's stack gives its dmesg DaemonSet (docs/sources.md, Konduktor).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from types import TracebackType
from typing import Self

import aiohttp
import orjson

from gameday_rehearsal.nodes.kernel_log import KernelRecord

log = logging.getLogger(__name__)

_BATCH_EVERY_S = 0.1
_BATCH_LINES = 2000
_BUFFER_LINES = 200_000
_BACKOFF_S = (0.2, 3.0)
_PUSH_TIMEOUT_S = 10.0


class LogShipper:
    """Ships lines; an async context manager. `ship` may be called at any time, even before it is entered."""

    def __init__(self, loki_url: str | None, token: str = "") -> None:
        """Ship to this log store with the bearer token; None to ship nowhere."""
        self._url = f"{loki_url.rstrip('/')}/loki/api/v1/push" if loki_url else None
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        self._waiting: deque[tuple[int, str, str]] = deque(maxlen=_BUFFER_LINES)
        self._filled = asyncio.Event()
        self._last_ns: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None
        self.overflowed = 0

    async def __aenter__(self) -> Self:
        if self._url:
            self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def ship(self, node: str, record: KernelRecord) -> None:
        self.ship_line(node, record.wall_ns, record.line)

    def ship_line(self, node: str, wall_ns: int, line: str) -> None:
        """Ship a line as `dmesg` prints it, stamped with a time in nanoseconds since 1970."""
        if self._url is None:
            return
        # Loki drops a line with a time and text that it has already; equal lines in one nanosecond are two lines.
        ns = max(wall_ns, self._last_ns.get(node, 0) + 1)
        self._last_ns[node] = ns
        if len(self._waiting) == _BUFFER_LINES:
            self.overflowed += 1
            if self.overflowed == 1:
                log.warning("log store away for long: the oldest of %d waiting lines are dropped", _BUFFER_LINES)
        self._waiting.append((ns, node, line))
        self._filled.set()

    async def _run(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_PUSH_TIMEOUT_S)) as session:
            while True:
                await self._filled.wait()
                await asyncio.sleep(_BATCH_EVERY_S)
                self._filled.clear()
                while self._waiting:
                    batch = [self._waiting.popleft() for _ in range(min(_BATCH_LINES, len(self._waiting)))]
                    await self._push(session, batch)

    async def _push(self, session: aiohttp.ClientSession, batch: list[tuple[int, str, str]]) -> None:
        """Try until the store takes it. A batch that it calls malformed is dropped, because it would stay malformed."""
        assert self._url
        body = orjson.dumps({"streams": _streams(batch)})
        pause_s = _BACKOFF_S[0]
        while True:
            try:
                async with session.post(self._url, data=body, headers=self._headers) as answer:
                    if answer.status < 400:
                        return
                    reason = f"HTTP {answer.status}: {(await answer.text())[:200].strip()}"
                    if answer.status < 500 and answer.status != 429:
                        log.error("log store refused %d lines, dropped: %s", len(batch), reason)
                        return
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                reason = str(error) or type(error).__name__
            log.info("log store %s: %s; %d lines wait", self._url, reason, len(batch) + len(self._waiting))
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _BACKOFF_S[1])


def _streams(batch: list[tuple[int, str, str]]) -> list[dict[str, object]]:
    by_node: dict[str, list[list[str]]] = {}
    for ns, node, line in batch:
        by_node.setdefault(node, []).append([str(ns), line])
    return [
        {
            "stream": {
                "k8s_daemonset_name": "dmesg",
                "k8s_namespace_name": "dmesg-logging",
                "k8s_node_name": node,
            },
            "values": values,
        }
        for node, values in by_node.items()
    ]
