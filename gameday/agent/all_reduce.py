"""Role all-reduce: one rank of an all-reduce over several nodes, through one named interface.

The ranks meet first (gameday/agent/meeting.py). The order's backend then carries the data: the ring of TCP in this
module, or NCCL (gameday/agent/nccl_ranks.py). Every wait is bounded, here, in the ring and in NCCL's ranks.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from statistics import fmean

from pydantic import Field

from gameday.agent import nccl_ranks
from gameday.agent.all_reduce_limits import LATENCY_LIMIT_S, LINKED_TIMEOUT_S, ROUND_LIMIT_S
from gameday.agent.channel import Channel, StrangerError, prove
from gameday.agent.context import Context
from gameday.agent.meeting import (
    ANSWER_MARGIN_S,
    CONNECT_TIMEOUT_S,
    JOIN_TIMEOUT_S,
    Message,
    Place,
    answers,
    cut_off_at_end,
    gather,
    join,
)
from gameday.agent.ring import Done, Ring, Rounds
from gameday.agent.task import AgentResult, AllReduceNote, AllReduceTask
from gameday.errors import HostError, LinkError
from gameday.host.base import Host, Listener
from gameday.values.measures import Backend
from gameday.values.results import Cleanliness

_LATENCY_ROUNDS = 10
_SMALLEST_BYTES, _LARGEST_BYTES = 64 << 10, 256 << 20
_ROUND_S = 0.02
"""The shortest round of the baseline: the time of 1 GiB at 400 Gbit/s. Latency then hardly counts."""
_ROUNDS = 20
"""The default of nccl-tests."""
_MEASURE_S = 3.0
_FLOAT_BYTES = 4


class _Linked(Message):
    """A rank's report on its two connections of the ring; `error` says what the network refused, empty if nothing."""

    error: str = Field(default="", max_length=300)


def all_reduce(task: AllReduceTask, context: Context, environment: Mapping[str, str]) -> AgentResult:
    """Take part; rank 0 prints what was measured, or why nothing was. Never raises HostError.

    Args:
        task: The rank's order.
        context: The host, and the pod's log.
        environment: The container's.
    """
    by_nccl = task.backend is Backend.NCCL
    try:
        if task.rank:
            nccl_ranks.follow(task, context, environment) if by_nccl else _follow(task, context)
            return _result(task, "", f"rank {task.rank} took part to the end")
        note = nccl_ranks.lead(task, context, environment) if by_nccl else _lead(task, context)
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
    """Gather the peers, close the ring, and measure. Raises HostError if nothing can be measured."""
    host = context.host
    with ExitStack() as open_sockets:
        data = host.listen(task.interface)
        open_sockets.callback(data.socket.close)
        peers = gather(task, context, open_sockets)
        channels = [channel for channel, _ in peers]
        places = [hello.place for _, hello in peers if hello.place]
        if len(places) < len(peers):
            raise HostError("a peer names no place in the ring")
        for channel, place in zip(channels, [*places[1:], Place(address=data.address, port=data.port)], strict=True):
            channel.send(place)
        ring, why = _closed_ring(task, host, data, places[0])
        refused = [answer.error for answer in answers(channels, _Linked, LINKED_TIMEOUT_S) if answer.error]
        if ring is None or refused:
            return AllReduceNote(value=0.0, detail=f"no ring: {why or refused[0]}", ranks=len(task.nodes))
        open_sockets.callback(ring.close)
        cut_off_at_end(context.ending, ring)
        note = _Measurement(ring, channels, len(task.nodes)).measure(task)
        for channel in channels:
            channel.send(Rounds(rounds=0, elements=1, within_s=1))
        return note


def _follow(task: AllReduceTask, context: Context) -> None:
    """Join rank 0 and do what it orders until it ends the measurement. Raises HostError."""
    with ExitStack() as open_sockets:
        data = context.host.listen(task.interface)
        open_sockets.callback(data.socket.close)
        channel = join(task, context, open_sockets, Place(address=data.address, port=data.port))
        place = channel.receive(Place, JOIN_TIMEOUT_S + ANSWER_MARGIN_S)
        ring, why = _closed_ring(task, context.host, data, place)
        channel.send(_Linked(error=why))
        if ring is None:
            return
        open_sockets.callback(ring.close)
        cut_off_at_end(context.ending, ring)
        while (order := channel.receive(Rounds, LINKED_TIMEOUT_S + ROUND_LIMIT_S)).rounds:
            channel.send(ring.run(order))


def _closed_ring(task: AllReduceTask, host: Host, data: Listener, place: Place) -> tuple[Ring | None, str]:
    """Connect to the next rank while the previous one connects to this one.

    Returns:
        The ring, or None and what the network refused.
    """
    accepted: list[socket.socket] = []
    thread = threading.Thread(target=_accept, args=(data.socket, task.secret, accepted))
    thread.start()
    previous, following = (task.nodes[(task.rank + step) % len(task.nodes)] for step in (-1, 1))
    why, to_next = "", None
    try:
        to_next = host.connect(task.interface, place.address, place.port, CONNECT_TIMEOUT_S)
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
    """Accept connections until one proves to be the previous rank's, or its time is up."""
    deadline = time.monotonic() + CONNECT_TIMEOUT_S + 1.0
    listener.settimeout(0.1)
    while not accepted and time.monotonic() < deadline:
        try:
            made, _ = listener.accept()
        except OSError:
            continue  # no connection in this tenth of a second
        # Each in its own thread: a stranger that stays silent must not hold up the rank behind it.
        threading.Thread(target=_take, args=(made, secret, accepted), daemon=True).start()


def _take(made: socket.socket, secret: str, accepted: list[socket.socket]) -> None:
    """Append a connection if it proves itself."""
    try:
        prove(made, secret, accepts=True)
    except StrangerError:
        made.close()
    else:
        accepted.append(made)


class _Measurement:
    """Rank 0's orders to all ranks, and their results."""

    def __init__(self, ring: Ring, channels: Sequence[Channel], ranks: int) -> None:
        self._ring, self._channels, self._ranks = ring, channels, ranks

    def measure(self, task: AllReduceTask) -> AllReduceNote:
        """Return latency and bandwidth. Raises HostError if a peer leaves or a sum is wrong."""
        quick = self._run(_LATENCY_ROUNDS, _FLOAT_BYTES * self._ranks, LATENCY_LIMIT_S)
        how = f"{self._ranks} nodes, TCP over {task.interface} from CPU to CPU"
        if quick[0].cut_off:
            return self._note(quick, None, 0, f"{how}: {self._cut_off(quick)}")
        latency_ms = 1000 * fmean(done.seconds for done in quick) / _LATENCY_ROUNDS
        size = task.bytes or self._grown()
        rounds = [self._run(1, size, ROUND_LIMIT_S)]
        began = time.monotonic()
        while len(rounds) < _ROUNDS and not rounds[-1][0].cut_off and time.monotonic() - began < _MEASURE_S:
            rounds.append(self._run(1, size, ROUND_LIMIT_S))
        said = f"{how}: {size >> 10} KiB, {len(rounds)} round(s), latency {latency_ms:.3g} ms"
        all_done = [done for answers in rounds for done in answers]
        if why := self._cut_off(all_done):
            said += f"; {why}"
        return self._note(all_done, latency_ms, size, said)

    def _note(self, done: Sequence[Done], latency_ms: float | None, size: int, said: str) -> AllReduceNote:
        """Return the note. The bytes one rank receives in a time are nccl-tests' bus bandwidth (docs/sources.md)."""
        rate = sum(one.received_bytes for one in done) / sum(one.seconds for one in done) / 1e9 if size else 0.0
        return AllReduceNote(value=rate, detail=said, latency_ms=latency_ms, bytes=size, ranks=self._ranks)

    def _grown(self) -> int:
        """Return the message size at which a round of the baseline takes long enough."""
        size = _SMALLEST_BYTES
        while size < _LARGEST_BYTES:
            done = self._run(1, size, ROUND_LIMIT_S)
            if done[0].cut_off or fmean(one.seconds for one in done) >= _ROUND_S:
                break
            size *= 2
        return size

    def _run(self, rounds: int, size: int, within_s: float) -> list[Done]:
        """Let every rank run, and return the answers, rank 0's first. Raises HostError."""
        step = _FLOAT_BYTES * self._ranks
        order = Rounds(rounds=rounds, elements=max(1, size // step) * self._ranks, within_s=within_s)
        for channel in self._channels:
            channel.send(order)
        own = self._ring.run(order)
        done = [own, *answers(self._channels, Done, within_s + ANSWER_MARGIN_S)]
        if wrong := sum(one.wrong for one in done):
            raise HostError(f"{wrong} elements of the all-reduce are not the sum of what the nodes sent")
        return done

    def _cut_off(self, done: Sequence[Done]) -> str:
        why = next((one.cut_off for one in done if one.cut_off), "")
        return f"cut off: {why}" if why else ""
