"""Real bytes between two machines of the model, as the interfaces on their way let them pass."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gameday.errors import HostError, LinkError
from gameday_rehearsal.nodes import ways as model
from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.network import Qdisc
from gameday_rehearsal.nodes.ways import Ways
from tests.rehearsal.nodes.conftest import Rack

STREAMS = tuple[asyncio.StreamReader, asyncio.StreamWriter]
MIB = 1 << 20


def held_to(machine: Machine, kind: str, **options: Any) -> None:
    machine.network.interfaces["ib0"].qdisc = Qdisc(kind, "6ada:", options)


def address(machine: Machine) -> str:
    return machine.network.interfaces["ib0"].address


@asynccontextmanager
async def way(rack: Rack) -> AsyncIterator[tuple[STREAMS, STREAMS]]:
    """The near end and the far end of a way from machine `a` to machine `b` over ib0."""
    a, b = rack.machines
    ways = Ways({one.name: one for one in rack.machines})
    arrived: asyncio.Future[STREAMS] = asyncio.Future()
    server = await asyncio.start_server(lambda *streams: arrived.set_result(streams), "127.0.0.1", 0)
    async with server:
        port = await ways.open(a, "ib0", address(b), server.sockets[0].getsockname()[1])
        near = await asyncio.open_connection("127.0.0.1", port)
        far = await arrived
        try:
            yield near, far
        finally:
            for _, writer in (near, far):
                writer.close()
            await ways.close()


async def carried(sender: STREAMS, receiver: STREAMS, size: int) -> float:
    """Send so many bytes, check that they all came, and return the seconds it took."""
    sent, began = bytes(range(256)) * (size // 256), time.monotonic()
    sender[1].write(sent)
    assert await receiver[0].readexactly(size) == sent
    return time.monotonic() - began


async def test_a_rate_limit_holds_what_leaves_and_not_what_arrives(rack: Rack) -> None:
    held_to(rack.machines[0], "tbf", rate=1_000_000, burst=32_768, lat=50_000)
    async with way(rack) as (near, far):
        out, back = await carried(near, far, 256 << 10), await carried(far, near, 256 << 10)
    assert out > 0.25
    assert back < out


async def test_a_delay_holds_every_step(rack: Rack) -> None:
    held_to(rack.machines[0], "netem", delay={"delay": 0.05, "jitter": 0.0})
    async with way(rack) as (near, far):
        assert await carried(near, far, 256) > 0.045  # the event loop's own clock is no finer


async def test_a_loss_costs_what_mathis_formula_says(rack: Rack) -> None:
    a, b = rack.machines
    held_to(a, "netem", **{"delay": {"delay": 0.05, "jitter": 0.0}, "loss-random": {"loss": 0.01}})
    one, other = a.network.interfaces["ib0"], b.network.interfaces["ib0"]
    one.busy_until = began = time.monotonic()
    taken = model._leaves_at(one, other, 1_000_000) - began
    assert taken == pytest.approx(1_000_000 * 0.05008 * 0.1 / 4092, rel=0.01)


async def test_a_way_is_as_fast_as_the_wire_without_a_fault(rack: Rack) -> None:
    interfaces = [machine.network.interfaces["ib0"] for machine in rack.machines]
    interfaces[0].busy_until = began = time.monotonic()
    assert model._leaves_at(interfaces[0], interfaces[1], 50 * MIB) - began == pytest.approx(50 * MIB / 50e6)


@pytest.mark.parametrize("down", [0, 1])
async def test_a_link_that_goes_down_carries_nothing_until_it_is_back(down: int, rack: Rack) -> None:
    network = rack.machines[down].network
    async with way(rack) as (near, far):
        await carried(near, far, 256)
        network.set_link("ib0", up=False)
        near[1].write(b"later")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await far[0].read(5)
        network.set_link("ib0", up=True)
        assert await far[0].readexactly(5) == b"later"


async def test_no_connection_comes_about_over_a_link_that_is_down(rack: Rack) -> None:
    a, b = rack.machines
    ways = Ways({one.name: one for one in rack.machines})
    a.network.set_link("ib0", up=False)
    with pytest.raises(LinkError, match="Network is unreachable"):
        await ways.open(a, "ib0", address(b), 9)
    with pytest.raises(LinkError, match="No route to host"):
        await ways.open(b, "ib0", address(a), 9)
    with pytest.raises(LinkError, match="No route to host"):
        await ways.open(b, "ib0", "10.255.0.1", 9)
    with pytest.raises(HostError, match="ib77: No such device"):
        await ways.open(b, "ib77", address(a), 9)
    held_to(b, "netem", **{"loss-random": {"loss": 1.0}})
    a.network.set_link("ib0", up=True)
    with pytest.raises(LinkError, match="timed out"):
        await ways.open(b, "ib0", address(a), 9)


async def test_an_end_that_closes_ends_the_other(rack: Rack) -> None:
    async with way(rack) as (near, far):
        await carried(near, far, 256)
        near[1].close()
        assert await far[0].read() == b""
