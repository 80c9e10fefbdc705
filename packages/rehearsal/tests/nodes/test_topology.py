"""The topology updater of a virtual node: zones by what the kubelet gave out, and a write for each allocation."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any, cast

from gameday_rehearsal.nodes.devices import GpuDevices, GpuHolder
from gameday_rehearsal.nodes.topology import TOPOLOGIES, TopologyUpdater, definition, is_served, topology
from kubesim.client import ApiClient
from kubesim.errors import ApiError

Json = dict[str, Any]
NODE = "gpu-node-1"


class Server:
    """An API server with one object at most; the first so many writes fail."""

    def __init__(self, failures: int = 0) -> None:
        self.object: Json | None = None
        self.writes: list[str] = []
        self.failures = failures

    async def get(self, path: str) -> Json:
        assert path == f"{TOPOLOGIES}/{NODE}"
        if self.object is None:
            raise ApiError(404, "NotFound", "none")
        return self.object

    async def post(self, path: str, body: Json) -> Json:
        assert path == TOPOLOGIES
        return self._write("create", body)

    async def put(self, path: str, body: Json) -> Json:
        assert self.object is not None
        assert body["metadata"]["resourceVersion"] == self.object["metadata"]["resourceVersion"]
        return self._write("update", body)

    def _write(self, verb: str, body: Json) -> Json:
        if self.failures:
            self.failures -= 1
            raise ApiError(503, "ServiceUnavailable", "later")
        self.writes.append(verb)
        self.object = deepcopy(body)
        self.object["metadata"]["resourceVersion"] = str(len(self.writes))
        return self.object


def devices(broken: int | None = None) -> GpuDevices:
    return GpuDevices(8, lambda gpu: gpu != broken, lambda *_: None)


def hold(held: GpuDevices, pod: str, gpus: int = 1) -> None:
    held.allocate([(GpuHolder(pod, "ns", pod, "work"), gpus)])


def zones(found: Json) -> list[tuple[str, str, str]]:
    resources = [zone["resources"][0] for zone in found["zones"]]
    return [(one["capacity"], one["allocatable"], one["available"]) for one in resources]


def updater(server: Server, held: GpuDevices, interval_s: float = 60) -> TopologyUpdater:
    async def at_once() -> None:
        return

    return TopologyUpdater(NODE, held, cast("ApiClient", server), at_once, interval_s)


def test_a_pods_gpu_is_taken_from_its_zone_and_a_broken_one_is_not_allocatable() -> None:
    held = devices(broken=7)
    hold(held, "a", 5)
    found = topology(NODE, held)
    assert zones(found) == [("4", "4", "0"), ("4", "3", "2")]
    assert found["attributes"][0] == {"name": "topologyManagerPolicy", "value": "single-numa-node"}
    assert [cost["value"] for cost in found["zones"][1]["costs"]] == [21, 10]


def test_every_allocation_is_a_write_and_a_freed_gpu_is_none() -> None:
    async def play() -> tuple[Server, GpuDevices]:
        server, held = Server(), devices()
        one = updater(server, held)
        running = asyncio.create_task(one.keep_written())
        one.allocated()  # before it runs: nobody writes
        await asyncio.sleep(0.01)
        assert server.writes == []
        one.switch(on=True)
        for pod in ("a", "b"):
            hold(held, pod)
            one.allocated()
        await asyncio.sleep(0.05)
        held.release("a")
        await asyncio.sleep(0.05)
        one.switch(on=False)
        one.allocated()
        await asyncio.sleep(0.01)
        running.cancel()
        return server, held

    server, held = asyncio.run(play())
    assert server.writes == ["create", "update", "update"]
    assert server.object is not None
    assert zones(server.object)[0] == ("4", "4", "2")
    assert zones(topology(NODE, held))[0] == ("4", "4", "3")


def test_the_interval_writes_what_no_allocation_showed() -> None:
    async def play() -> Server:
        server, held = Server(), devices()
        hold(held, "a")
        one = updater(server, held, interval_s=0.02)
        one.switch(on=True)
        running = asyncio.create_task(one.keep_written())
        await asyncio.sleep(0.01)
        held.release("a")
        async with asyncio.timeout(5):
            while server.object is None or zones(server.object)[0][2] != "4":
                await asyncio.sleep(0.01)
        running.cancel()
        return server

    assert asyncio.run(play()).writes[:2] == ["create", "update"]


def test_its_definition_is_served_once_the_server_says_so() -> None:
    made = definition()
    assert not is_served(made)
    assert is_served({**made, "status": {"conditions": [{"type": "Established", "status": "True"}]}})
