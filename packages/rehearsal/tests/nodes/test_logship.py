from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from gameday_rehearsal.nodes import logship
from gameday_rehearsal.nodes.kernel_log import KernelRecord
from gameday_rehearsal.nodes.logship import LogShipper


def record(text: str, wall_ns: int = 1_700_000_000_000_000_000) -> KernelRecord:
    return KernelRecord(12345.678901, wall_ns, 1, 3, text)


class Store:
    """Answers each push with the next status, the last one for ever; keeps what it accepted."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.entries: list[tuple[dict[str, str], str, str]] = []
        self.pushes = 0
        self.shown = ""
        self.changed = asyncio.Condition()

    async def push(self, request: web.Request) -> web.Response:
        self.pushes += 1
        self.shown = request.headers["Authorization"]
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if status < 400:
            for stream in (await request.json())["streams"]:
                self.entries += [(stream["stream"], ns, line) for ns, line in stream["values"]]
        async with self.changed:
            self.changed.notify_all()
        return web.Response(status=status)

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(20), self.changed:
            await self.changed.wait_for(condition)


async def serve(store: Store, port: int = 0) -> tuple[web.AppRunner, int]:
    app = web.Application()
    app.router.add_post("/loki/api/v1/push", store.push)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    return runner, runner.addresses[0][1]


async def test_lines_arrive_with_konduktors_labels_and_distinct_times() -> None:
    store = Store(204)
    runner, port = await serve(store)
    async with LogShipper(f"http://127.0.0.1:{port}", "secret") as shipper:
        shipper.ship("n1", record("NVRM: Xid"))
        shipper.ship("n1", record("NVRM: Xid"))
        shipper.ship("n2", record("other"))
        await store.until(lambda: len(store.entries) == 3)
    await runner.cleanup()
    assert store.shown == "Bearer secret"
    labels, ns, line = store.entries[0]
    assert labels == {"k8s_daemonset_name": "dmesg", "k8s_namespace_name": "dmesg-logging", "k8s_node_name": "n1"}
    assert line == "[12345.678901] NVRM: Xid"
    assert int(store.entries[1][1]) == int(ns) + 1, "Loki would drop the second of two equal entries"
    assert store.pushes == 1


async def test_a_store_that_is_down_or_failing_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = asyncio.Event()
    monkeypatch.setattr(logship.log, "info", lambda *_: failed.set())
    store = Store(500, 429, 204)
    runner, port = await serve(store)
    await runner.cleanup()  # now there is a port and nobody listens
    async with LogShipper(f"http://127.0.0.1:{port}") as shipper:
        for number in range(50):
            shipper.ship("n1", record(f"line {number}"))
        await asyncio.wait_for(failed.wait(), 20)
        shipper.ship("n1", record("while away"))
        runner, _ = await serve(store, port)
        await store.until(lambda: len(store.entries) == 51)
    await runner.cleanup()
    assert [line.split("] ")[1] for _, _, line in store.entries] == [f"line {n}" for n in range(50)] + ["while away"]


async def test_what_the_store_calls_malformed_does_not_block_the_rest() -> None:
    store = Store(400, 204)
    runner, port = await serve(store)
    async with LogShipper(f"http://127.0.0.1:{port}") as shipper:
        shipper.ship("n1", record("bad"))
        await store.until(lambda: store.pushes == 1)
        shipper.ship("n1", record("good"))
        await store.until(lambda: len(store.entries) == 1)
    await runner.cleanup()
    assert store.entries[0][2].endswith("good")
