"""Work over the virtual host's protocol, against the rehearsal's own server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from gameday.errors import HostError
from gameday.host.base import Burn, CopyToGpu, HoldMemory, Host
from gameday.host.virtual import VirtualHost
from gameday_rehearsal.nodes.host_calls import CALLS
from gameday_rehearsal.nodes.logship import LogShipper
from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.server import application
from gameday_rehearsal.nodes.virtual_nodes import Settings, VirtualNodes
from tests.rehearsal.nodes.conftest import eventually


class Served:
    """A virtual node on a free port, served by a thread."""

    def __init__(self, folder: Path) -> None:
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._folder = folder
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self._thread.start()
        assert self._ready.wait(20)

    async def _serve(self) -> None:
        nodes = VirtualNodes(Settings(1, 4, "node", 0.01, self._folder), LogShipper(None))
        self.machine: Machine = nodes.machines["node-1"]
        runner = web.AppRunner(application(nodes), access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hosts/node-1"
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("node"))
    yield served
    served.close()


@pytest.fixture
def host(served: Served) -> Iterator[VirtualHost]:
    host = VirtualHost(served.url)
    yield host
    for gpu in range(4):
        host.end_work(gpu)


def test_a_burn_reports_is_steered_and_ends(served: Served, host: VirtualHost) -> None:
    first = host.start_work(1, Burn())
    assert first.tflops is not None
    assert host.has_work(1)
    assert host.gpus()[1].utilization_pct == 100
    host.steer_work(1, 0.5)
    assert host.gpus()[1].utilization_pct == 50
    eventually(lambda: (report := host.work_report(1)) and report.products > first.products, "a later report")
    last = host.end_work(1)
    assert last
    assert last.products > first.products
    assert not host.has_work(1)
    assert host.work_report(1) is None


def test_work_ends_with_the_agent_that_started_it(served: Served) -> None:
    dying = VirtualHost(served.url)
    dying.start_work(1, HoldMemory(leave_bytes=1 << 30))
    assert (served.machine.samples()[1].memory_used_bytes or 0) > 1 << 33
    dying._works._works[1].end()  # closes the connection without a DELETE
    eventually(lambda: served.machine.samples()[1].memory_used_bytes == 4 << 20, "its memory to be free")
    assert not served.machine.works


def test_work_that_another_agent_ends_is_reported_as_ended(served: Served, host: VirtualHost) -> None:
    host.start_work(2, Burn())
    VirtualHost(served.url).end_work(2)
    error = eventually(lambda: (report := host.work_report(2)) and report.error, "the error in the report")
    assert "ended" in error or "broke off" in error
    assert not host.has_work(2)


def test_work_that_cannot_begin_is_refused_with_the_hosts_own_message(served: Served, host: VirtualHost) -> None:
    with pytest.raises(HostError, match="has no GPU 9"):
        host.start_work(9, Burn())
    with pytest.raises(HostError, match="nothing to take"):
        host.start_work(1, HoldMemory(leave_bytes=1 << 40))
    host.start_work(1, CopyToGpu(cpus=(0,)))
    with pytest.raises(HostError, match="has work of this agent already"):
        host.start_work(1, Burn())
    with pytest.raises(HostError, match="node-1 has work already"):
        VirtualHost(served.url).start_work(1, Burn())
    with pytest.raises(HostError, match="is no burn"):
        host.steer_work(1, 0.5)
    with pytest.raises(HostError, match="no work of this agent"):
        host.steer_work(0, 0.5)


def test_users_of_a_gpu_include_the_daemon_and_our_own_work(served: Served, host: VirtualHost) -> None:
    (daemon,) = host.gpu_users(3)
    assert "nvidia-persistenced" in daemon.command
    host.start_work(3, Burn())
    assert "python -m gameday.host.worker --gpu=3" in [user.command for user in host.gpu_users(3)]


def test_a_host_that_does_not_answer_is_a_host_error(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.close()
    with pytest.raises(HostError, match=r"start_work: .*[Rr]efused"):
        VirtualHost(served.url).start_work(0, Burn())


def test_only_the_methods_of_a_host_may_be_called_and_only_with_their_own_arguments(tmp_path: Path) -> None:
    here = {"work_report", "own_address", "api_server"}  # the agent's own process answers these
    assert set(CALLS) | here == {name for name in vars(Host) if not name.startswith("_")}

    async def asked(client: TestClient[web.Request, web.Application], method: str, body: str) -> tuple[int, str]:
        answer = await client.post(f"/hosts/node-1/call/{method}", data=body)
        return answer.status, str((await answer.json())["error"])

    async def play() -> None:
        nodes = VirtualNodes(Settings(1, 4, "node", 0.01, tmp_path), LogShipper(None))
        async with TestClient(TestServer(application(nodes))) as client:
            for method in ("__init__", "machine", "nobody"):
                status, said = await asked(client, method, "{}")
                assert (status, "its calls are write_kernel_log, " in said) == (404, True), method
            for body in (
                "{",
                "[]",
                '{"argv": []}',
                '{"argv": ["true"], "timeout_s": 9999}',
                '{"argv": ["true"], "timeout_s": 0}',
                '{"argv": ["true"], "timeout_s": 1, "self": 1}',
            ):
                assert (await asked(client, "run", body))[0] == 400, body
            assert await asked(client, "has_work", '{"gpu": "one"}') == (
                400,
                "gpu: Input should be a valid integer, unable to parse string as an integer",
            )

    asyncio.run(play())
