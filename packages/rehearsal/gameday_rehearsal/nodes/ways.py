"""Ways through the model's network: real bytes between two agents, as the interfaces in between let them pass.

A connection is relayed in this process. In each direction the bytes leave at the rate of the sender's interface and
arrive after its delay. While one of the two interfaces is down they wait, because TCP would try again. A loss costs
what Mathis' formula says of TCP (docs/sources.md, Networks), because a relay cannot lose bytes itself.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from gameday.errors import LinkError
from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.network import (
    WINDOW_BYTES,
    WIRE_S,
    Interface,
    address_of,
    lost_share,
    one_way_delay,
    tcp_rate,
)

_LOOPBACK = "127.0.0.1"
_WIRE_BYTES_PER_S = 50e6
"""Rate of every interface here, our choice: as much as a busy laptop relays in real time, a hundredth of a real one."""
_CHUNK = 16 << 10
_AHEAD_S = 0.005
"""Seconds that a late relay can make up for; our choice, more than the pauses of a busy event loop."""
_RETRY_S = 0.2
"""Linux' shortest retransmission timeout (TCP_RTO_MIN)."""
_USED_WITHIN_S = 10.0


@dataclass(frozen=True)
class _End:
    """An end of a way: a machine and the name of its interface, which a reboot replaces."""

    machine: Machine
    name: str

    @property
    def interface(self) -> Interface:
        return self.machine.network.interfaces[self.name]

    @property
    def passes(self) -> bool:
        """Return True if anything leaves or arrives."""
        return self.machine.powered and self.interface.up


class Ways:
    """All open ways; each one ends with either of its connections."""

    def __init__(self, machines: Mapping[str, Machine]) -> None:
        self._machines = machines
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, machine: Machine, interface: str, address: str, port: int) -> int:
        """Open a way for one connection.

        Args:
            machine: The machine that connects.
            interface: Its interface.
            address: Address of another machine's interface.
            port: The real port on the loopback device where the other machine's agent listens.

        Returns:
            The port on the loopback device at which the way begins.

        Raises:
            LinkError: The model's network lets no connection through.
            HostError: There is no such interface.
        """
        address_of(machine.network, interface)
        begin = _End(machine, interface)
        if not begin.passes:
            raise LinkError(f"{interface} to {address}: Network is unreachable")
        end = self._end_at(address)
        if end is None or not end.passes:
            raise LinkError(f"{interface} to {address}: No route to host")
        if 1.0 in (lost_share(begin.interface), lost_share(end.interface)):
            raise LinkError(f"{interface} to {address}: Connection timed out")
        arrived: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Future()

        def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if arrived.done():
                writer.close()
            else:
                arrived.set_result((reader, writer))

        server = await asyncio.start_server(take, _LOOPBACK, 0, limit=_CHUNK)
        task = asyncio.create_task(_carry(server, arrived, begin, end, port))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return int(server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """End every way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _end_at(self, address: str) -> _End | None:
        for machine in self._machines.values():
            for interface in machine.network.interfaces.values():
                if interface.address == address:
                    return _End(machine, interface.name)
        return None


async def _carry(
    server: asyncio.Server,
    arrived: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]],
    begin: _End,
    end: _End,
    port: int,
) -> None:
    """Carry one connection to its end."""
    async with server:
        try:
            async with asyncio.timeout(_USED_WITHIN_S):
                near_reader, near_writer = await arrived
                far_reader, far_writer = await asyncio.open_connection(_LOOPBACK, port, limit=_CHUNK)
        except (TimeoutError, OSError):
            if arrived.done() and not arrived.cancelled():
                arrived.result()[1].close()
            return
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_pass_on(near_reader, far_writer, begin, end))
            group.create_task(_pass_on(far_reader, near_writer, end, begin))
    except* ConnectionError:
        pass  # one end is gone, and the other soon will be
    finally:
        for writer in (near_writer, far_writer):
            writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sender: _End, receiver: _End) -> None:
    """Pass one direction's bytes on, until they end."""
    window = asyncio.Semaphore(WINDOW_BYTES // _CHUNK)
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
    dice = random.Random(f"{sender.interface.mac}/{sender.interface.packets}")  # noqa: S311 - a model's noise
    arriving = asyncio.create_task(_arrive(waiting, window, writer))
    latest = 0.0
    try:
        while chunk := await reader.read(_CHUNK):
            await window.acquire()
            while not (sender.passes and receiver.passes):
                await asyncio.sleep(_RETRY_S)
            leaves = _leaves_at(sender.interface, receiver.interface, len(chunk))
            await _until(leaves)
            delay, jitter = one_way_delay(sender.interface)
            latest = max(latest, leaves + WIRE_S / 2 + max(0.0, delay + dice.uniform(-jitter, jitter)))
            waiting.put_nowait((latest, chunk))
        waiting.put_nowait((latest, b""))
        await arriving
    finally:
        arriving.cancel()


async def _arrive(
    waiting: asyncio.Queue[tuple[float, bytes]], window: asyncio.Semaphore, writer: asyncio.StreamWriter
) -> None:
    """Write what has left once it arrives, in order; an empty chunk is the end."""
    while True:
        at, chunk = await waiting.get()
        await _until(at)
        if not chunk:
            with suppress(OSError):
                writer.write_eof()
            return
        writer.write(chunk)
        await writer.drain()
        window.release()


def _leaves_at(interface: Interface, far: Interface, size: int) -> float:
    """Return when this many bytes have left, behind those of all connections through the interface."""
    rate = min(_WIRE_BYTES_PER_S, tcp_rate(interface, far))
    interface.busy_until = max(interface.busy_until, time.monotonic() - _AHEAD_S) + size / rate
    return interface.busy_until


async def _until(at: float) -> None:
    """Wait until a moment of the monotonic clock, but not for less than the event loop can time."""
    left = at - time.monotonic()
    if left > 0.001:
        await asyncio.sleep(left)
