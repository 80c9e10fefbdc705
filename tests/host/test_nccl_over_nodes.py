"""A rank of an all-reduce over nodes, with NumPy for CuPy and threads for nodes; and real NCCL without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gameday.host import nccl_over_nodes
from gameday.host.base import AllReduceOverNodes
from gameday.host.nccl_over_nodes import is_about_network, last_warning, take_part, variables
from tests.host.test_nccl_all_reduce import DeviceArray, FakeCupy, memory
from tests.host.test_worker import process

ID = bytes(range(128))


class NcclError(RuntimeError):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class Cupy(FakeCupy):
    def full(self, *shape: int, dtype: Any) -> Any:
        return np.full(*shape, dtype=dtype).view(DeviceArray)


class FakeNccl:
    """NCCL for ranks in threads: each all-reduce waits for all ranks. `flip`: the number of a wrong one, on rank 1."""

    NCCL_UINT32, NCCL_UINT64, NCCL_SUM, NCCL_MAX = 3, 5, 0, 2

    def __init__(self, ranks: int, flip: int | None = None, fails: NcclError | None = None) -> None:
        self.met = threading.Barrier(ranks)
        self.sent: dict[int, Any] = {}
        self.done, self.flip, self.fails = [0] * ranks, flip, fails
        self.ids: list[tuple[int, ...]] = []

    def get_unique_id(self) -> tuple[int, ...]:
        return tuple(one - 256 if one > 127 else one for one in ID)  # as a signed char

    def NcclCommunicator(self, ranks: int, unique_id: tuple[int, ...], rank: int) -> Any:
        assert ranks == self.met.parties
        self.ids.append(unique_id)
        return SimpleNamespace(allReduce=lambda *call: self._all_reduce(rank, *call), check_async_error=self._check)

    def groupStart(self) -> None:
        pass

    def groupEnd(self) -> None:
        pass

    def _check(self) -> None:
        if self.fails:
            raise self.fails

    def _all_reduce(self, rank: int, sent: int, received: int, count: int, kind: int, operation: int, _: int) -> None:
        words = count if kind == self.NCCL_UINT32 else 2 * count
        self.sent[rank] = memory(sent, words).copy()
        self.met.wait(10)
        values = [one if kind == self.NCCL_UINT32 else one.view(np.uint64) for one in self.sent.values()]
        total = np.sum(values, axis=0, dtype=values[0].dtype) if operation == self.NCCL_SUM else np.max(values, axis=0)
        memory(received, words)[:] = total.view(np.uint32)
        self.met.wait(10)
        self.done[rank] += 1
        if rank == 1 and self.done[rank] == self.flip:
            memory(received, words)[words - 1] ^= 1


def order(rank: int = 0, ranks: int = 2, **given: Any) -> AllReduceOverNodes:
    unique_id = ID.hex() if rank else ""
    fields = {"rank": rank, "ranks": ranks, "unique_id": unique_id, "interface": "ib0"}
    return AllReduceOverNodes.model_validate(fields | given)


def played(nccl: FakeNccl, monkeypatch: pytest.MonkeyPatch, **given: Any) -> list[tuple[dict[str, Any], list[Any]]]:
    """Return each rank's last figures and its reports."""
    monkeypatch.setattr(nccl_over_nodes, "_LARGEST_BYTES", 256 << 10)
    monkeypatch.setattr(nccl_over_nodes, "_ROUNDS", 3)
    found: dict[int, tuple[dict[str, Any], list[Any]]] = {}

    def run(rank: int) -> None:
        reports: list[Any] = []
        orders = order(rank, nccl.met.parties, **given)
        figures = take_part(Cupy(), nccl, 0, orders, lambda **one: reports.append(one), pytest.fail)  # type: ignore[arg-type]
        found[rank] = (figures, reports)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(nccl.met.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return [found[rank] for rank in sorted(found)]


@pytest.mark.parametrize("ranks", [2, 3])
def test_all_ranks_measure_the_same_rounds_and_every_sum_is_right(ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    nccl = FakeNccl(ranks)
    results = played(nccl, monkeypatch)
    figures = [figures for figures, _ in results]
    assert all(one["finished"] and one["wrong_sums"] == 0 and one["bus_gbs"] > 0 for one in figures)
    assert len({(one["bus_gbs"], one["latency_ms"], one["round_bytes"]) for one in figures}) == 1
    assert set(nccl.ids) == {tuple(ID)}
    assert results[0][1][0] == {"unique_id": ID.hex()}
    assert all(reports[0] == {"unique_id": ""} for _, reports in results[1:])


def test_a_later_measurement_reduces_the_bytes_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert played(FakeNccl(2), monkeypatch, bytes=100_000)[0][0]["round_bytes"] == 100_000


def test_a_slow_network_ends_the_growth_before_the_baselines_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_over_nodes, "_MEASURE_S", 1e-6)
    (figures, reports), _ = played(FakeNccl(2), monkeypatch, bytes=1 << 28)
    assert figures["round_bytes"] == 64 << 10 and figures["finished"]
    assert [one["round_bytes"] for one in reports if "round_bytes" in one] == [64 << 10]


def test_a_wrong_bit_on_one_rank_is_counted_there(monkeypatch: pytest.MonkeyPatch) -> None:
    # All-reduce 14: behind one to connect, one of its time, ten of the latency and one of theirs.
    (healthy, _), (wrong, _) = played(FakeNccl(2, flip=14), monkeypatch)
    assert (healthy["wrong_sums"], wrong["wrong_sums"]) == (0, 1)


def test_an_error_of_nccls_own_threads_is_told_while_a_round_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_over_nodes, "_ASK_EVERY_S", 0.01)
    nccl, failed = FakeNccl(2, fails=NcclError(6)), threading.Event()
    errors: list[Exception] = []

    def fail(error: Exception) -> None:
        errors.append(error)
        failed.set()
        nccl.met.abort()

    with pytest.raises(threading.BrokenBarrierError):
        take_part(Cupy(), nccl, 0, order(), lambda **_: None, fail)  # type: ignore[arg-type]
    assert failed.is_set() and is_about_network(errors[0])


def test_the_data_goes_through_the_named_interface_or_adapter_and_nothing_else() -> None:
    sockets, rdma = variables(order()), variables(order(interface="eth0", hca="mlx5_0"))
    assert (sockets["NCCL_NET"], sockets["NCCL_SOCKET_IFNAME"], sockets["NCCL_IB_DISABLE"]) == ("Socket", "=ib0", "1")
    assert (rdma["NCCL_NET"], rdma["NCCL_SOCKET_IFNAME"], rdma["NCCL_IB_HCA"]) == ("IB", "=eth0", "=mlx5_0")
    for given in (sockets, rdma):
        assert {given[f"NCCL_{name}"] for name in ("P2P_DISABLE", "SHM_DISABLE")} == {"1"}
        assert given["NCCL_MNNVL_ENABLE"] == "0"
    assert variables(order(environment={"NCCL_IB_HCA": "=mlx5_9"}, hca="mlx5_0"))["NCCL_IB_HCA"] == "=mlx5_9"


@pytest.mark.parametrize(("status", "network"), [(1, False), (2, True), (3, True), (4, False), (5, True), (6, True)])
def test_some_of_nccls_errors_are_about_the_network(status: int, network: bool) -> None:
    assert is_about_network(NcclError(status)) is network
    assert not is_about_network(KeyError(status))


def test_the_last_warning_is_short_and_printable() -> None:
    log = os.memfd_create("test")
    try:
        assert last_warning(log) == ""
        os.write(
            log, b"vm:1 NCCL WARN first\nvm:1 NCCL INFO other\nvm:1 x.cc:3 NCCL WARN \x1b[2J" + b"y" * 9000 + b"\n"
        )
        said = last_warning(log)
    finally:
        os.close(log)
    assert said.startswith("\\x1b[2Jyyy") and len(said) < 250 and "\x1b" not in said


_REAL = """
import json, os, sys
from pathlib import Path
from gameday.host.base import AllReduceOverNodes
from gameday.host.nccl_over_nodes import is_about_network, last_warning, prepare
log = prepare(AllReduceOverNodes(rank=0, ranks=2, interface=sys.argv[1]), Path(sys.argv[2]))
from cupy.cuda import nccl
made, network = (), False
try:
    made = nccl.get_unique_id()
except nccl.NcclError as error:
    network = is_about_network(error)
answer = {"version": nccl.get_version(), "id": len(made), "zero": not any(made), "network": network}
print(json.dumps(answer | {"said": last_warning(log), "inherited": os.environ.get("NCCL_ALGO")}))
"""


def real_nccl(interface: str, folder: Path, network_of: int) -> dict[str, Any]:
    """Make a unique id with the installed NCCL, in a process of its own, as a worker does in a process's network."""
    host = folder / "1/ns"
    host.mkdir(parents=True)
    (host / "net").symlink_to(f"/proc/{network_of}/ns/net")
    command = [sys.executable, "-c", _REAL, interface, str(folder)]
    environment = {**os.environ, "NCCL_ALGO": "Tree"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120, env=environment)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert len(done.stdout.splitlines()) == 1, "NCCL wrote where the reports go"
    return answer


@pytest.fixture
def _nccl() -> None:
    for module in ("cupy", "nvidia.nccl"):
        pytest.importorskip(module, reason="the extra `gpu` is not installed (make test-gpu installs it)")


@pytest.mark.usefixtures("_nccl")
def test_real_nccl_makes_an_id_through_the_named_interface(tmp_path: Path) -> None:
    answer = real_nccl("lo", tmp_path, os.getpid())
    assert answer["version"] >= 22600 and answer["id"] == 128 and not answer["zero"]
    assert (answer["network"], answer["said"], answer["inherited"]) == (False, "", None)


@pytest.mark.usefixtures("_nccl")
def test_real_nccl_in_a_host_network_whose_link_is_down_says_so_and_it_is_about_the_network(tmp_path: Path) -> None:
    with subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as host:
        assert host.stdin
        assert host.stdout
        host.stdin.write(b"up\n")
        host.stdin.flush()
        if not host.stdout.readline():
            pytest.skip("this machine makes no network namespaces")
        answer = real_nccl("lo", tmp_path, host.pid)  # a new namespace's `lo` is down
        host.stdin.close()
    assert answer["id"] == 0 and answer["network"]
    assert answer["said"] == "Bootstrap : no socket interface found"


_STUB = """
import os, sys, threading
from types import SimpleNamespace
from gameday.host import nccl_over_nodes
from tests.host.test_nccl_over_nodes import Cupy, ID, NcclError

class Nccl(SimpleNamespace):
    def NcclCommunicator(self, ranks, unique_id, rank):
        with open(os.environ["NCCL_DEBUG_FILE"], "w") as log:
            log.write("vm:1 [0] NCCL WARN Connection closed by remote peer \\x1b[2J\\n")
        return SimpleNamespace(check_async_error=check, allReduce=lambda *_: threading.Event().wait())

def check():
    if FAILS:
        raise NcclError(6)

nccl_over_nodes.enter_host_network = lambda proc: None
nccl = Nccl(available=True, get_unique_id=lambda: tuple(ID), groupStart=lambda: None, NCCL_UINT32=3, NCCL_SUM=0)
sys.modules |= {"cupy": Cupy(), "cupy.cuda": Cupy(), "cupy.cuda.nccl": nccl}
"""


def test_a_worker_whose_round_hangs_reports_nccls_own_error_and_ends() -> None:
    with process(order().model_dump(), f"FAILS = True\n{_STUB}") as worker:
        assert worker.stdout
        first, last = (json.loads(line) for line in worker.stdout)
        assert worker.wait(10) == 1
    assert first["unique_id"] == ID.hex()
    assert last["no_link"] and "finished" not in last
    assert last["error"] == "NcclError: status 6: Connection closed by remote peer \\x1b[2J"


@pytest.mark.slow
def test_a_worker_that_hangs_without_an_error_ends_with_its_agent() -> None:
    with process(order().model_dump(), f"FAILS = False\n{_STUB}") as worker:
        assert worker.stdout
        assert worker.stdin
        assert json.loads(worker.stdout.readline())["unique_id"] == ID.hex()
        assert worker.poll() is None
        worker.stdin.close()
        assert worker.wait(10) == 0
