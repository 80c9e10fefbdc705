"""An all-reduce over several agents, each in a thread of its own, through real sockets."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from gameday.agent import all_reduce as role
from gameday.agent import meeting
from gameday.agent.channel import Channel, PeerLeftError, StrangerError, prove
from gameday.agent.context import Context, Ending
from gameday.agent.meeting import Hello, Place
from gameday.agent.ring import Done, Ring, Rounds
from gameday.agent.task import AgentResult, AllReduceNote, AllReduceTask, RendezvousNote
from gameday.errors import HostError
from gameday.host.base import Host, Listener
from tests.host.fake import FakeHost

SECRET = "a secret of this test"
NODES = ("gpu-node-1", "gpu-node-2", "gpu-node-3")


class Told(Context):
    """A context that keeps the notes, and tells when the first one is there."""

    def __init__(self, host: Host, folder: Path) -> None:
        super().__init__(host, Ending(), folder, folder / "log")
        object.__setattr__(self, "notes", [])
        object.__setattr__(self, "waits", threading.Event())

    def print_note(self, note: BaseModel) -> None:
        self.notes.append(note)  # type: ignore[attr-defined]
        self.waits.set()  # type: ignore[attr-defined]


@dataclass
class Played:
    note: AllReduceNote
    lead: AgentResult
    followers: list[AgentResult] = field(default_factory=list)


Act = Callable[[RendezvousNote], None]


def order(rank: int, nodes: tuple[str, ...], waits: RendezvousNote | None = None, **given: Any) -> AllReduceTask:
    place = {"lead_address": waits.address, "lead_port": waits.port} if waits else {}
    fields = {"run_id": "r", "node": nodes[rank], "rank": rank, "nodes": nodes, "interface": "ib0", "secret": SECRET}
    return AllReduceTask.model_validate(fields | place | given)


def play(
    hosts: list[Host], folder: Path, act: Act | None = None, missing: int = 0, size: int = 0, **given: Any
) -> Played:
    """Play one all-reduce: a rank on each host, but for the last `missing`; `act` runs when rank 0 waits."""
    nodes = NODES[: len(hosts)]
    lead = Told(hosts[0], folder)
    results: dict[int, AgentResult] = {}

    def run(rank: int, task: AllReduceTask, context: Context) -> None:
        results[rank] = role.all_reduce(task, context, {})

    threads = [threading.Thread(target=run, args=(0, order(0, nodes, bytes=size, **given), lead))]
    threads[0].start()
    assert lead.waits.wait(10)  # type: ignore[attr-defined]
    waits = lead.notes[0]  # type: ignore[attr-defined]
    if isinstance(waits, RendezvousNote):
        for rank in range(1, len(hosts) - missing):
            task = order(rank, nodes, waits, bytes=size, **given)
            threads.append(threading.Thread(target=run, args=(rank, task, Told(hosts[rank], folder))))
            threads[-1].start()
        if act:
            act(waits)
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a rank hangs"
    note = lead.notes[-1]  # type: ignore[attr-defined]
    assert isinstance(note, AllReduceNote)
    return Played(note, results[0], [results[rank] for rank in sorted(results) if rank])


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "JOIN_TIMEOUT_S", 1.0)
    for name, value in {"CONNECT_TIMEOUT_S": 1.0, "_MEASURE_S": 0.1, "_LARGEST_BYTES": 1 << 20}.items():
        monkeypatch.setattr(role, name, value)


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_reduce_and_rank_0_says_what_they_achieved(ranks: int, tmp_path: Path) -> None:
    played = play([FakeHost() for _ in range(ranks)], tmp_path)
    assert played.note.value is not None and played.note.value > 0, played.note
    assert played.note.latency_ms is not None and played.note.bytes >= 64 << 10
    assert f"{ranks} nodes, TCP over ib0 from CPU to CPU" in played.note.detail
    assert [result.ok for result in (played.lead, *played.followers)] == [True] * ranks


def test_a_later_measurement_reduces_as_many_bytes_as_the_baseline(tmp_path: Path) -> None:
    assert play([FakeHost(), FakeHost()], tmp_path, size=128 << 10).note.bytes == 128 << 10


def test_a_peer_that_never_comes_leaves_it_unknown_with_its_name(tmp_path: Path) -> None:
    played = play([FakeHost(), FakeHost(), FakeHost()], tmp_path, missing=1)
    assert (played.note.value, played.note.detail) == (None, "peer gpu-node-3 did not come within 1 s")
    assert "gpu-node-1 left the all-reduce" in played.followers[0].error


def test_a_network_that_refuses_the_ring_is_measured_as_nothing(tmp_path: Path) -> None:
    cut_off = FakeHost()
    cut_off.refuse["connect"] = "ib0 to 10.0.0.2: Network is unreachable"
    note = play([cut_off, FakeHost()], tmp_path).note
    assert note.value == 0.0
    assert "gpu-node-1 does not reach gpu-node-2 over ib0" in note.detail and "unreachable" in note.detail


def test_a_node_without_the_interface_leaves_it_unknown(tmp_path: Path) -> None:
    host = FakeHost()
    host.refuse["listen"] = "no socket can be bound to the interface ib0: No such device"
    played = play([host, FakeHost()], tmp_path)
    assert (played.note.value, played.note.detail) == (None, host.refuse["listen"])


def joined(waits: RendezvousNote, secret: str = SECRET) -> tuple[Channel, socket.socket]:
    """Join as rank 1 by hand, with a ring's listener that nobody accepts at."""
    made = socket.create_connection((waits.address, waits.port), 5)
    listening = socket.create_server(("127.0.0.1", 0))
    prove(made, secret, accepts=False)
    channel = Channel(made, "gpu-node-1")
    address, port = listening.getsockname()
    channel.send(Hello(rank=1, place=Place(address=address, port=port)))
    return channel, listening


def closed_by_hand(channel: Channel, listening: socket.socket) -> Ring:
    """Close the ring of two ranks from rank 1."""
    place = channel.receive(Place, 5)
    to_next = socket.create_connection((place.address, place.port), 5)
    proving = threading.Thread(target=prove, args=(to_next, SECRET), kwargs={"accepts": False})
    proving.start()
    from_previous, _ = listening.accept()
    prove(from_previous, SECRET, accepts=True)
    proving.join()
    channel.send(role._Linked())
    return Ring(1, 2, to_next, from_previous)


def test_a_peer_that_dies_leaves_it_unknown_with_its_name_and_the_time(tmp_path: Path) -> None:
    def die(waits: RendezvousNote) -> None:
        channel, listening = joined(waits)
        ring = closed_by_hand(channel, listening)
        channel.send(ring.run(channel.receive(Rounds, 5)))
        channel.receive(Rounds, 5)  # the next order, which nobody carries out
        for one in (ring, channel, listening):
            one.close()

    played = play([FakeHost(), FakeHost()], tmp_path, act=die, missing=1)
    assert played.note.value is None
    assert played.note.detail.startswith("peer gpu-node-2 left the all-reduce after ")
    assert not played.lead.ok and played.lead.cleanliness == "clean"


def test_a_link_that_carries_nothing_any_more_is_cut_off_at_what_came_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role, "ROUND_LIMIT_S", 0.3)

    def stall(waits: RendezvousNote) -> None:
        channel, listening = joined(waits)
        ring = closed_by_hand(channel, listening)
        channel.send(ring.run(channel.receive(Rounds, 5)))
        channel.receive(Rounds, 5)  # its bytes go nowhere, and the peer lives
        channel.send(Done(rounds=0, seconds=0.3, received_bytes=0, cut_off="the time was up"))
        channel.receive(Rounds, 5)
        for one in (ring, channel, listening):
            one.close()

    note = play([FakeHost(), FakeHost()], tmp_path, act=stall, missing=1, size=1 << 20).note
    assert note.value == 0.0
    assert "cut off: the time was up" in note.detail


def test_a_rank_that_has_to_end_does_so_at_once_wherever_it_waits(tmp_path: Path) -> None:
    lead, host = Told(FakeHost(), tmp_path), FakeHost()
    leading = threading.Thread(target=role.all_reduce, args=(order(0, NODES[:2]), lead, {}))
    leading.start()
    assert lead.waits.wait(10)  # type: ignore[attr-defined]
    channel, listening = joined(lead.notes[0])  # type: ignore[attr-defined]
    ring = closed_by_hand(channel, listening)
    channel.receive(Rounds, 5)  # nobody carries it out, so that rank 0 waits within a round
    lead.ending.by_signal()
    leading.join(60)
    assert not leading.is_alive()
    assert lead.notes[-1].value is None or "cut off" in lead.notes[-1].detail  # type: ignore[attr-defined]

    meeting = socket.create_server(("127.0.0.1", 0))
    waits = RendezvousNote(address="127.0.0.1", port=meeting.getsockname()[1])
    follower = Told(host, tmp_path)
    following = threading.Thread(target=role.all_reduce, args=(order(1, NODES[:2], waits), follower, {}))
    following.start()
    made, _ = meeting.accept()
    prove(made, SECRET, accepts=True)
    Channel(made, "gpu-node-2").receive(Hello, 5)  # it waits for its neighbour's place now
    follower.ending.by_signal()
    following.join(60)
    assert not following.is_alive()
    for one in (ring, channel, listening, meeting, made):
        one.close()


def test_a_wrong_sum_is_no_measurement(tmp_path: Path) -> None:
    def lie(waits: RendezvousNote) -> None:
        channel, listening = joined(waits)
        ring = closed_by_hand(channel, listening)
        done = ring.run(channel.receive(Rounds, 5))
        channel.send(done.model_copy(update={"wrong": 3}))
        with pytest.raises(PeerLeftError):
            channel.receive(Rounds, 5)
        for one in (ring, channel, listening):
            one.close()

    note = play([FakeHost(), FakeHost()], tmp_path, act=lie, missing=1).note
    assert (note.value, note.detail) == (None, "3 elements of the all-reduce are not the sum of what the nodes sent")


def test_a_stranger_at_the_rendezvous_is_turned_away_and_the_peer_still_comes(tmp_path: Path) -> None:
    def knock(waits: RendezvousNote) -> None:
        with pytest.raises(StrangerError):
            joined(waits, secret="another secret, as long")

    played = play([FakeHost(), FakeHost()], tmp_path, act=knock)
    assert played.note.value is not None, played.note


def test_a_silent_stranger_at_the_interface_does_not_keep_the_ring_from_closing(tmp_path: Path) -> None:
    class Visited(FakeHost):
        def listen(self, interface: str) -> Listener:
            made = super().listen(interface)
            strangers.append(socket.create_connection((made.address, made.port), 5))
            return made

    strangers: list[socket.socket] = []
    note = play([Visited(), Visited()], tmp_path).note
    assert note.value, note
    for one in strangers:
        one.close()


def test_the_secret_is_in_no_message(tmp_path: Path) -> None:
    ends = socket.socketpair()
    heard: list[bytes] = []

    def listen() -> None:
        heard.append(ends[1].recv(1024))
        ends[1].sendall(b"\0" * 16 + b"\0" * 32)
        heard.append(ends[1].recv(1024))

    thread = threading.Thread(target=listen)
    thread.start()
    with pytest.raises(StrangerError, match="does not know"):
        prove(ends[0], SECRET, accepts=True)
    thread.join()
    for end in ends:
        end.close()
    assert SECRET.encode() not in b"".join(heard)
    assert SECRET not in repr(order(0, NODES))


@pytest.fixture
def ring_of_three() -> Iterator[list[Ring]]:
    pairs = [socket.socketpair() for _ in range(3)]
    rings = [Ring(rank, 3, pairs[rank][0], pairs[rank - 1][1]) for rank in range(3)]
    yield rings
    for ring in rings:
        ring.close()


def test_every_rank_has_the_sum_and_receives_what_nccl_tests_count(ring_of_three: list[Ring]) -> None:
    data = [np.arange(9, dtype=np.float32) * (rank + 1) for rank in range(3)]
    threads = [
        threading.Thread(target=ring._all_reduce, args=(data[rank], time.monotonic() + 10))
        for rank, ring in enumerate(ring_of_three)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert all(np.array_equal(one, np.arange(9) * 6) for one in data)
    # 2(n-1)/n of 36 bytes.
    assert [ring._received for ring in ring_of_three] == [48, 48, 48]


def test_a_message_that_is_none_is_refused_without_its_text() -> None:
    near, far = socket.socketpair()
    channel = Channel(near, "gpu-node-2")
    far.sendall(json.dumps({"rounds": "<script>"}).encode() + b"\n")
    with pytest.raises(HostError, match="peer gpu-node-2 sent something else than a Done"):
        channel.receive(Done, 1)
    far.sendall(b"x" * 70_000)
    with pytest.raises(HostError, match="more than 65536 bytes"):
        channel.receive(Done, 1)
    channel.close()
    far.close()
