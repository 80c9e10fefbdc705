"""Role all-reduce: one rank of an all-reduce over several nodes, through one named interface.

The ranks meet at rank 0, over the pods' own network, so that a fault of the
measured interface is not taken for a peer that died: the first is a figure, the
second leaves it unknown. Every wait is bounded, here and in the ring.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import fmean
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field

from gameday.agent.channel import Channel, StrangerError, prove
from gameday.agent.context import Context, Ending
from gameday.agent.ring import Done, Ring, Rounds
from gameday.agent.task import AgentResult, AllReduceNote, AllReduceTask, RendezvousNote
from gameday.errors import HostError, LinkError
from gameday.host.base import Host, Listener
from gameday.values.results import Cleanliness

JOIN_TIMEOUT_S = 75.0
"""Peers' pods are created when rank 0 is ready; each may have to pull the image (gameday/run/agents.py: 60 s)."""
_CONNECT_TIMEOUT_S = 10.0
"""Four tries of TCP's, at 0, 1, 3 and 7 s (Linux' initial timeout of one second, doubled each time)."""
_LINKED_TIMEOUT_S = 2 * _CONNECT_TIMEOUT_S + 15.0
_ANSWER_MARGIN_S = 10.0
_LATENCY_ROUNDS, _LATENCY_LIMIT_S = 10, 5.0
_SMALLEST_BYTES, _LARGEST_BYTES = 64 << 10, 256 << 20
_ROUND_S = 0.02
"""A round of the baseline takes so long at least: as long as 1 GiB needs at 400 Gbit/s. Latency then hardly counts."""
_ROUNDS = 20
"""The default of nccl-tests."""
_MEASURE_S, _ROUND_LIMIT_S = 3.0, 20.0
LONGEST_S = JOIN_TIMEOUT_S + _LINKED_TIMEOUT_S + _LATENCY_LIMIT_S + 3 * (_ROUND_LIMIT_S + _ANSWER_MARGIN_S)
"""Seconds that a rank takes at the longest."""
_FLOAT_BYTES = 4

M = TypeVar("M", bound=BaseModel)


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Hello(_Message):
    """A peer's rank, and where its predecessor reaches it through the interface."""

    rank: int = Field(ge=1, le=1024)
    address: str = Field(max_length=45)
    port: int = Field(ge=1, le=65_535)


class _Next(_Message):
    """The place where the next rank listens."""

    address: str = Field(max_length=45)
    port: int = Field(ge=1, le=65_535)


class _Linked(_Message):
    """A rank's word on its two connections of the ring; `error` says what the network refused, and is else empty."""

    error: str = Field(default="", max_length=300)


def all_reduce(task: AllReduceTask, context: Context) -> AgentResult:
    """Take part, and on rank 0 print what was measured, or why nothing was. Never raises HostError."""
    try:
        if task.rank:
            _follow(task, context)
            return _result(task, "", f"rank {task.rank} took part to the end")
        note = _lead(task, context)
    except HostError as error:
        if task.rank:
            return _result(task, str(error), str(error))
        note = AllReduceNote(value=None, detail=str(error)[:1000])
    context.print_note(note)
    return _result(task, "" if note.value is not None else note.detail, note.detail)


def _result(task: AllReduceTask, error: str, evidence: str) -> AgentResult:
    return AgentResult(
        role=task.role, ok=not error, cleanliness=Cleanliness.CLEAN, error=error, evidence=(evidence[:1000],)
    )


def _lead(task: AllReduceTask, context: Context) -> AllReduceNote:
    """Gather the peers, close the ring, and measure. Raises HostError where nothing can be measured."""
    host = context.host
    with ExitStack() as open_sockets:
        data = host.listen(task.interface)
        open_sockets.callback(data.socket.close)
        meeting = socket.create_server(("", 0), backlog=2 * len(task.nodes))
        open_sockets.callback(meeting.close)
        context.print_note(RendezvousNote(address=host.own_address(), port=meeting.getsockname()[1]))
        context.become_ready()
        peers = _gather(task, meeting, context.ending)
        for channel, _ in peers:
            open_sockets.callback(channel.close)
        places = [_Next(address=hello.address, port=hello.port) for _, hello in peers]
        for (channel, _), place in zip(peers, [*places[1:], _Next(address=data.address, port=data.port)], strict=True):
            channel.send(place)
        channels = [channel for channel, _ in peers]
        ring, why = _closed_ring(task, host, data, places[0])
        refused = [answer.error for answer in _answers(channels, _Linked, _LINKED_TIMEOUT_S) if answer.error]
        if ring is None or refused:
            return AllReduceNote(value=0.0, detail=f"no ring: {why or refused[0]}", ranks=len(task.nodes))
        open_sockets.callback(ring.close)
        _cut_off_at_end(context.ending, ring, *channels)
        note = _Measurement(ring, channels, len(task.nodes)).measure(task)
        for channel in channels:
            channel.send(Rounds(rounds=0, elements=1, within_s=1))
        return note


def _gather(task: AllReduceTask, meeting: socket.socket, ending: Ending) -> list[tuple[Channel, _Hello]]:
    """Return the peers in the order of their ranks. Raises HostError for one that does not come in time."""
    peers: dict[int, tuple[Channel, _Hello]] = {}
    deadline = time.monotonic() + JOIN_TIMEOUT_S
    meeting.settimeout(0.2)
    while len(peers) < len(task.nodes) - 1:
        missing = [node for rank, node in enumerate(task.nodes) if rank and rank not in peers]
        if ending.event.is_set():
            raise HostError(f"ended while waiting for {', '.join(missing)}")
        if time.monotonic() > deadline:
            raise HostError(f"peer {', '.join(missing)} did not come within {JOIN_TIMEOUT_S:.0f} s")
        try:
            made, _ = meeting.accept()
            prove(made, task.secret, accepts=True)
            hello = Channel(made, "that connects").receive(_Hello, _CONNECT_TIMEOUT_S)
        except TimeoutError:
            continue
        except StrangerError:
            made.close()
            continue
        if hello.rank in peers or hello.rank >= len(task.nodes):
            raise HostError(f"two peers, or one too many, call themselves rank {hello.rank}")
        peers[hello.rank] = (Channel(made, task.nodes[hello.rank]), hello)
    return [peers[rank] for rank in sorted(peers)]


def _follow(task: AllReduceTask, context: Context) -> None:
    """Join rank 0 and do what it orders, until it says that it is over. Raises HostError."""
    with ExitStack() as open_sockets:
        data = context.host.listen(task.interface)
        open_sockets.callback(data.socket.close)
        try:
            made = socket.create_connection((task.lead_address, task.lead_port), _CONNECT_TIMEOUT_S)
        except OSError as error:
            raise HostError(f"cannot reach {task.nodes[0]} at {task.lead_address}: {error}") from None
        prove(made, task.secret, accepts=False)
        channel = Channel(made, task.nodes[0])
        open_sockets.callback(channel.close)
        _cut_off_at_end(context.ending, channel)
        channel.send(_Hello(rank=task.rank, address=data.address, port=data.port))
        context.become_ready()
        place = channel.receive(_Next, JOIN_TIMEOUT_S + _ANSWER_MARGIN_S)
        ring, why = _closed_ring(task, context.host, data, place)
        channel.send(_Linked(error=why))
        if ring is None:
            return
        open_sockets.callback(ring.close)
        _cut_off_at_end(context.ending, ring)
        while (order := channel.receive(Rounds, _LINKED_TIMEOUT_S + _ROUND_LIMIT_S)).rounds:
            channel.send(ring.run(order))


def _cut_off_at_end(ending: Ending, *open_ends: Channel | Ring) -> None:
    """Cut connections off when the agent has to end, so that no wait outlasts its pod's grace."""

    def wait() -> None:
        ending.event.wait()
        for one in open_ends:
            one.cut_off()

    threading.Thread(target=wait, daemon=True).start()


def _closed_ring(task: AllReduceTask, host: Host, data: Listener, place: _Next) -> tuple[Ring | None, str]:
    """Connect to the next rank while the previous one connects to us.

    Returns:
        The ring, or None and what the network refused.
    """
    accepted: list[socket.socket] = []
    thread = threading.Thread(target=_accept, args=(data.socket, task.secret, accepted))
    thread.start()
    previous, following = (task.nodes[(task.rank + step) % len(task.nodes)] for step in (-1, 1))
    why, to_next = "", None
    try:
        to_next = host.connect(task.interface, place.address, place.port, _CONNECT_TIMEOUT_S)
        prove(to_next, task.secret, accepts=False)
    except (LinkError, StrangerError) as error:
        why = f"{task.nodes[task.rank]} does not reach {following} over {task.interface}: {error}"
    thread.join()
    if not accepted and not why:
        why = f"{previous} did not reach {task.nodes[task.rank]} over {task.interface}"
    if to_next and accepted and not why:
        return Ring(task.rank, len(task.nodes), to_next, accepted[0]), ""
    for one in (*accepted, *([to_next] if to_next else ())):
        one.close()
    return None, why[:300]


def _accept(listener: socket.socket, secret: str, accepted: list[socket.socket]) -> None:
    """Accept until one connection proves that it is the previous rank's, within the time that it has for it."""
    deadline = time.monotonic() + _CONNECT_TIMEOUT_S + 1.0
    listener.settimeout(0.1)
    while not accepted and time.monotonic() < deadline:
        try:
            made, _ = listener.accept()
        except OSError:
            continue  # nobody came in this tenth of a second
        # Each in a thread of its own: a stranger that says nothing must not hold up the rank behind it.
        threading.Thread(target=_take, args=(made, secret, accepted), daemon=True).start()


def _take(made: socket.socket, secret: str, accepted: list[socket.socket]) -> None:
    """Append a connection that proves itself."""
    try:
        prove(made, secret, accepts=True)
    except StrangerError:
        made.close()
    else:
        accepted.append(made)


def _answers(channels: Sequence[Channel], model: type[M], within_s: float) -> list[M]:
    """Return every peer's answer. Raises PeerLeftError."""
    return [channel.receive(model, within_s) for channel in channels]


class _Measurement:
    """Rank 0's orders to all ranks, and what they come to."""

    def __init__(self, ring: Ring, channels: Sequence[Channel], ranks: int) -> None:
        self._ring, self._channels, self._ranks = ring, channels, ranks

    def measure(self, task: AllReduceTask) -> AllReduceNote:
        """Return latency and bandwidth. Raises HostError where a peer leaves or a sum is wrong."""
        quick = self._run(_LATENCY_ROUNDS, _FLOAT_BYTES * self._ranks, _LATENCY_LIMIT_S)
        how = f"{self._ranks} nodes, TCP over {task.interface} from CPU to CPU"
        if quick[0].cut_off:
            return self._note(quick, None, 0, f"{how}: {self._cut_off(quick)}")
        latency_ms = 1000 * fmean(done.seconds for done in quick) / _LATENCY_ROUNDS
        size = task.bytes or self._grown()
        rounds = [self._run(1, size, _ROUND_LIMIT_S)]
        began = time.monotonic()
        while len(rounds) < _ROUNDS and not rounds[-1][0].cut_off and time.monotonic() - began < _MEASURE_S:
            rounds.append(self._run(1, size, _ROUND_LIMIT_S))
        said = f"{how}: {size >> 10} KiB, {len(rounds)} round(s), latency {latency_ms:.3g} ms"
        all_done = [done for answers in rounds for done in answers]
        if why := self._cut_off(all_done):
            said += f"; {why}"
        return self._note(all_done, latency_ms, size, said)

    def _note(self, done: Sequence[Done], latency_ms: float | None, size: int, said: str) -> AllReduceNote:
        """Return the note; what a ring's rank receives in a time is nccl-tests' bus bandwidth (docs/sources.md)."""
        rate = sum(one.received_bytes for one in done) / sum(one.seconds for one in done) / 1e9 if size else 0.0
        return AllReduceNote(value=rate, detail=said, latency_ms=latency_ms, bytes=size, ranks=self._ranks)

    def _grown(self) -> int:
        """Return the size at which a round of the baseline takes long enough."""
        size = _SMALLEST_BYTES
        while size < _LARGEST_BYTES:
            done = self._run(1, size, _ROUND_LIMIT_S)
            if done[0].cut_off or fmean(one.seconds for one in done) >= _ROUND_S:
                break
            size *= 2
        return size

    def _run(self, rounds: int, size: int, within_s: float) -> list[Done]:
        """Have every rank run; the answers begin with our own. Raises HostError."""
        step = _FLOAT_BYTES * self._ranks
        order = Rounds(rounds=rounds, elements=max(1, size // step) * self._ranks, within_s=within_s)
        for channel in self._channels:
            channel.send(order)
        own = self._ring.run(order)
        done = [own, *_answers(self._channels, Done, within_s + _ANSWER_MARGIN_S)]
        if wrong := sum(one.wrong for one in done):
            raise HostError(f"{wrong} elements of the all-reduce are not the sum of what the nodes sent")
        return done

    def _cut_off(self, done: Sequence[Done]) -> str:
        why = next((one.cut_off for one in done if one.cut_off), "")
        return f"cut off: {why}" if why else ""
