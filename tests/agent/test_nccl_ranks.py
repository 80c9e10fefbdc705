"""An all-reduce by NCCL over several agents, whose work is that of the model's machines."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gameday.agent import all_reduce as role
from gameday.agent import meeting, nccl_ranks
from gameday.agent.channel import Channel, prove
from gameday.agent.meeting import Hello
from gameday.agent.task import RendezvousNote
from gameday.errors import HostError, LinkError
from gameday.host.base import WorkOrder, WorkReport
from gameday_rehearsal.nodes.dcgm import DcgmCache
from gameday_rehearsal.nodes.gpus import GpuFleet
from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.network import Qdisc
from gameday_rehearsal.nodes.work import ModelWork
from tests.agent.test_all_reduce import NODES, SECRET, Played, Told, order, play
from tests.host.fake import FakeHost, healthy_gpu

NCCL = {"backend": "nccl", "gpus": 1}
RDMA = NCCL | {"interface": "eth0", "hca": "mlx5_0"}


class RankHost(FakeHost):
    """A host whose one GPU works as that of a machine of the model; `lie` changes what its work reports."""

    def __init__(self, machine: Machine, lie: Callable[[WorkReport], WorkReport] = lambda report: report) -> None:
        super().__init__()
        self.samples = [healthy_gpu(0, uuid="GPU-00000000-0000-0000")]
        self.machine, self._lie = machine, lie

    def start_work(self, gpu: int, order: WorkOrder) -> WorkReport:
        work = ModelWork(self.machine, gpu, order)
        work.begin()
        report = self._lie(work.report())
        if report.error:
            raise (LinkError if report.no_link else HostError)(report.error)
        return report

    def work_report(self, gpu: int) -> WorkReport | None:
        work = self.machine.works.get(gpu)
        return self._lie(work.report()) if isinstance(work, ModelWork) else None

    def end_work(self, gpu: int) -> WorkReport | None:
        if work := self.machine.works.get(gpu):
            work.stop()
        return None


@pytest.fixture
def machines() -> list[Machine]:
    fleet = GpuFleet(list(NODES), 4)
    cache = DcgmCache(fleet)
    return [Machine(index, name, fleet, cache, lambda *_: None, boot_s=0.05) for index, name in enumerate(NODES)]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "JOIN_TIMEOUT_S", 1.0)
    monkeypatch.setattr(nccl_ranks, "_WORK_S", 0.5)
    monkeypatch.setattr(nccl_ranks, "_LOOK_EVERY_S", 0.01)


@pytest.fixture
def measured(machines: list[Machine], tmp_path: Path) -> Callable[..., Played]:
    def measure(ranks: int = 2, **given: Any) -> Played:
        return play([RankHost(machine) for machine in machines[:ranks]], tmp_path, **NCCL | given)

    return measure


def held_to(machine: Machine, kind: str, **options: Any) -> None:
    machine.network.interfaces["ib0"].qdisc = Qdisc(kind, "6ada:", options)


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_reduce_and_nothing_of_them_stays(
    measured: Callable[..., Played], ranks: int, machines: list[Machine]
) -> None:
    played = measured(ranks)
    assert played.note.value == pytest.approx(3.0, rel=0.02), played.note
    assert f"{ranks} nodes, NCCL from GPU to GPU, sockets over ib0, GPU 0 of gpu-node-1, " in played.note.detail
    assert played.note.latency_ms is not None and played.note.bytes >= 64 << 10
    assert [result.ok for result in (played.lead, *played.followers)] == [True] * ranks
    assert not any(machine.works for machine in machines)


def test_a_later_measurement_reduces_as_many_bytes_as_the_baseline(measured: Callable[..., Played]) -> None:
    assert measured(size=128 << 10).note.bytes == 128 << 10


def test_the_figure_follows_the_queue_of_either_node(measured: Callable[..., Played], machines: list[Machine]) -> None:
    healthy = measured().note
    held_to(machines[1], "tbf", rate=1_250_000, burst=32_768, lat=50_000)
    limited = measured(size=healthy.bytes).note
    held_to(machines[1], "netem", delay={"delay": 0.05}, **{"loss-random": {"loss": 0.01}})
    late = measured(size=healthy.bytes).note
    assert limited.value == pytest.approx(0.00125, rel=0.01)
    assert late.value is not None and 0 < late.value < 0.002
    assert (healthy.latency_ms or 0) < 1 < 50 <= (late.latency_ms or 0)


def test_rdma_does_not_feel_the_interfaces_queue_nor_its_end(
    measured: Callable[..., Played], machines: list[Machine]
) -> None:
    healthy = measured(**RDMA).note
    assert healthy.value == pytest.approx(48.0, rel=0.02) and "RDMA over mlx5_0" in healthy.detail
    held_to(machines[0], "tbf", rate=1_250_000, burst=32_768, lat=50_000)
    assert measured(**RDMA).note.value == healthy.value
    machines[0].network.set_link("ib0", up=False)
    assert measured(**RDMA).note.value == healthy.value


@pytest.mark.parametrize("down", [0, 1])
def test_an_interface_that_is_down_is_measured_as_nothing(
    measured: Callable[..., Played], machines: list[Machine], down: int
) -> None:
    machines[down].network.set_link("ib0", up=False)
    note = measured().note
    assert note.value == 0.0
    assert f"{NODES[down]} lost the network: " in note.detail and "no socket interface found" in note.detail


def test_a_link_that_carries_nothing_is_cut_off_and_says_where_each_rank_was(
    measured: Callable[..., Played], machines: list[Machine]
) -> None:
    held_to(machines[1], "netem", **{"loss-random": {"loss": 1.0}})
    note = measured().note
    assert note.value == 0.0
    for node in NODES[:2]:
        assert f"{node} was not connected when its time was up" in note.detail


def test_a_job_without_its_rdma_adapter_reduces_nothing_and_falls_to_no_sockets(
    measured: Callable[..., Played],
) -> None:
    note = measured(**RDMA, environment={"NCCL_IB_HCA": "=mlx5_99"}).note
    assert note.value == 0.0 and "lost the network" in note.detail


def test_a_job_with_another_interface_goes_through_that_one(
    measured: Callable[..., Played], machines: list[Machine]
) -> None:
    machines[0].network.set_link("ib0", up=False)
    assert measured(environment={"NCCL_SOCKET_IFNAME": "=eth0"}).note.value


@pytest.mark.parametrize("rank", [0, 1])
def test_a_gpu_that_fails_is_no_figure_of_the_network(machines: list[Machine], tmp_path: Path, rank: int) -> None:
    hosts = [RankHost(machine) for machine in machines[:2]]
    machines[rank].fleet.lost[rank, 0] = True
    hosts[rank].start_work = _refuse  # type: ignore[method-assign]
    note = play(list(hosts), tmp_path, **NCCL).note
    assert note.value is None
    assert "CUDARuntimeError" in note.detail


def _refuse(gpu: int, order: WorkOrder) -> WorkReport:
    raise HostError("CUDARuntimeError: GPU 0 is lost")


def test_a_wrong_sum_is_no_measurement(machines: list[Machine], tmp_path: Path) -> None:
    hosts = [RankHost(one, lambda report: report.model_copy(update={"wrong_sums": 2})) for one in machines[:2]]
    note = play(list(hosts), tmp_path, **NCCL).note
    assert (note.value, note.detail) == (None, "4 sums of the all-reduce are not the sum of what the nodes sent")


def test_what_nccl_says_is_shown_shortened_and_escaped(machines: list[Machine], tmp_path: Path) -> None:
    def lie(report: WorkReport) -> WorkReport:
        return report.model_copy(update={"error": "\x1b[31m<script>" + "x" * 5000, "no_link": True, "finished": False})

    note = play([RankHost(machines[0]), RankHost(machines[1], lie)], tmp_path, **NCCL).note
    assert note.value == 0.0
    assert "\\x1b[31m<script>" in note.detail and "\x1b" not in note.detail and len(note.detail) < 1000


def test_a_node_without_the_interface_leaves_it_unknown(machines: list[Machine], tmp_path: Path) -> None:
    for rank in range(2):
        hosts = [RankHost(machine) for machine in machines[:2]]
        hosts[rank].refuse["listen"] = "no socket can be bound to the interface ib0: No such device"
        note = play(list(hosts), tmp_path, **NCCL).note
        assert note.value is None and "No such device" in note.detail


def joined(waits: RendezvousNote) -> Channel:
    made = socket.create_connection((waits.address, waits.port), 5)
    prove(made, SECRET, accepts=False)
    channel = Channel(made, "gpu-node-1")
    channel.send(Hello(rank=1))
    return channel


def test_a_peer_that_dies_while_nccl_waits_leaves_it_unknown_with_its_name(
    machines: list[Machine], tmp_path: Path
) -> None:
    def die(waits: RendezvousNote) -> None:
        channel = joined(waits)
        assert len(channel.receive(nccl_ranks._Start, 5).unique_id) == 256
        channel.send(nccl_ranks._Part())
        channel.close()

    played = play([RankHost(machines[0]), FakeHost()], tmp_path, act=die, missing=1, **NCCL)
    assert played.note.value is None
    assert played.note.detail.startswith("peer gpu-node-2 left the all-reduce after ")
    assert not machines[0].works


@pytest.mark.parametrize("sent", ["", "ab" * 127, "zz" * 128, "ab" * 4096])
def test_an_id_that_is_none_is_refused_without_its_text(machines: list[Machine], tmp_path: Path, sent: str) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    waits = RendezvousNote(address="127.0.0.1", port=listening.getsockname()[1])
    results = []

    def follow() -> None:
        task = order(1, NODES[:2], waits, **NCCL)
        results.append(role.all_reduce(task, Told(RankHost(machines[1]), tmp_path), {}))

    following = threading.Thread(target=follow)
    following.start()
    made, _ = listening.accept()
    prove(made, SECRET, accepts=True)
    channel = Channel(made, "gpu-node-2")
    channel.receive(Hello, 5)
    channel.send(nccl_ranks._Start.model_construct(unique_id=sent))
    following.join(60)
    assert not following.is_alive()
    assert results[0].error == "peer gpu-node-1 sent something else than a _Start"
    assert not machines[1].works
    for one in (made, listening):
        one.close()


def test_a_rank_that_has_to_end_does_so_at_once_and_ends_its_work(machines: list[Machine], tmp_path: Path) -> None:
    lead = Told(RankHost(machines[0]), tmp_path)
    leading = threading.Thread(target=role.all_reduce, args=(order(0, NODES[:2], **NCCL), lead, {}))
    leading.start()
    assert lead.waits.wait(10)  # type: ignore[attr-defined]
    channel = joined(lead.notes[0])  # type: ignore[attr-defined]
    channel.receive(nccl_ranks._Start, 5)
    channel.send(nccl_ranks._Part())
    lead.ending.by_signal()
    leading.join(60)
    assert not leading.is_alive()
    assert lead.notes[-1].value is None  # type: ignore[attr-defined]
    assert not machines[0].works
    channel.close()
