"""All-reduce, held memory and copies on a real GPU: they run, NVML shows them, and nothing of them stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gameday.host.base import AllReduce, AllReduceOverNodes, CopyToGpu, GpuSample, HoldMemory
from gameday.host.cpus import parse_cpus
from gameday.host.processes import workers
from gameday.host.real import RealHost
from tests.gpu.conftest import Note, assert_given_back, now, until

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300), pytest.mark.usefixtures("cupy")]

_GIB, _MIB = 1 << 30, 1 << 20


def test_every_sum_of_an_all_reduce_is_right(gpu: GpuSample, host: RealHost, note: Note) -> None:
    gpus = tuple(sample.index for sample in host.gpus() if not sample.lost)
    report = host.start_work(gpu.index, AllReduce(gpus=gpus))
    note(f"all-reduce over {len(gpus)} GPUs: bus bandwidth {report.bus_gbs} GB/s, {report.wrong_sums} wrong sums")
    assert report.wrong_sums == 0
    assert report.bus_gbs is not None and (report.bus_gbs > 0) == (len(gpus) > 1)
    host.end_work(gpu.index)
    assert_given_back(host, gpu)


@pytest.fixture
def two(gpus: list[GpuSample], host: RealHost) -> Iterator[tuple[int, int]]:
    """Two GPUs without work of ours, before and after; NCCL takes no GPU twice."""
    indices = [sample.index for sample in gpus if not sample.lost]
    if len(indices) < 2:
        pytest.skip("NCCL needs a GPU for each rank, and this machine has one")
    yield indices[0], indices[1]
    for index in indices[:2]:
        host.end_work(index)
        assert not host.has_work(index)


def begun(host: RealHost, two: tuple[int, int]) -> None:
    """Begin both ranks of an all-reduce as over nodes, over sockets on the loopback interface."""
    first = host.start_work(two[0], AllReduceOverNodes(rank=0, ranks=2, interface="lo"))
    assert len(first.unique_id) == 256
    host.start_work(two[1], AllReduceOverNodes(rank=1, ranks=2, unique_id=first.unique_id, interface="lo"))


def is_over(host: RealHost, gpu: int) -> bool:
    report = host.work_report(gpu)
    return report is not None and (report.finished or bool(report.error))


@pytest.mark.usefixtures("root")
def test_two_ranks_of_an_all_reduce_over_nodes_meet_and_agree(two: tuple[int, int], host: RealHost, note: Note) -> None:
    begun(host, two)
    assert until(lambda: all(is_over(host, index) for index in two), 90)
    reports = [host.work_report(index) for index in two]
    note(f"all-reduce over nodes, sockets on lo: {reports}")
    for report in reports:
        assert report is not None and report.finished, report
        assert report.wrong_sums == 0 and report.bus_gbs and report.latency_ms
    assert len({report.bus_gbs for report in reports if report}) == 1


@pytest.mark.usefixtures("root")
def test_a_rank_whose_peer_is_killed_fails_or_waits_and_can_be_ended(
    two: tuple[int, int], host: RealHost, note: Note
) -> None:
    begun(host, two)
    host.end_work(two[1])
    began = time.monotonic()
    over = until(lambda: is_over(host, two[0]), 60)
    report = host.end_work(two[0])
    note(f"a rank whose peer was killed: over {over} after {time.monotonic() - began:.0f} s, {report}")
    assert report is not None and (report.no_link or not report.error)


@pytest.mark.parametrize("block", [None, 64 * _MIB], ids=["in one piece", "fragmented"])
def test_memory_that_is_held_is_shown_and_comes_back(
    gpu: GpuSample, host: RealHost, note: Note, block: int | None
) -> None:
    report = host.start_work(gpu.index, HoldMemory(leave_bytes=2 * _GIB, block_bytes=block))
    assert report.held_bytes and report.free_bytes is not None and report.largest_block_bytes is not None
    shown = (now(host, gpu).memory_used_bytes or 0) - (gpu.memory_used_bytes or 0)
    note(
        f"held {report.held_bytes / _GIB:.1f} GiB, NVML shows {shown / _GIB:.1f}; free {report.free_bytes / _GIB:.1f}, "
        f"largest block {report.largest_block_bytes / _GIB:.2f} GiB"
    )
    assert shown >= 0.9 * report.held_bytes
    if block is not None:
        assert report.unused_bytes and report.largest_block_bytes < report.unused_bytes
    host.end_work(gpu.index)
    assert_given_back(host, gpu)


def test_copies_run_from_the_cpus_next_to_the_gpu(gpu: GpuSample, host: RealHost, note: Note) -> None:
    near = sorted(set(parse_cpus(gpu.cpu_affinity or "")) & os.sched_getaffinity(0))
    if not near:
        pytest.skip("NVML names no CPU next to the GPU that this process may use")
    report = host.start_work(gpu.index, CopyToGpu(cpus=tuple(near)))
    note(f"{report.copy_gbs} GB/s from CPUs {gpu.cpu_affinity}, PCIe {gpu.pcie_generation_max} x{gpu.pcie_width_max}")
    assert report.copy_gbs and report.copy_gbs > 0


def test_copies_from_memory_that_is_bound_to_each_numa_node(gpu: GpuSample, host: RealHost, note: Note) -> None:
    nodes = parse_cpus(Path("/sys/devices/system/node/has_memory").read_text())
    rates: dict[int, float | None] = {}
    for node in nodes:
        order = CopyToGpu(cpus=tuple(os.sched_getaffinity(0)), memory_node=node)
        report = host.start_work(gpu.index, order)
        host.end_work(gpu.index)
        assert report.memory_node == node
        rates[node] = report.copy_gbs
    note("GB/s from memory of NUMA node " + ", ".join(f"{node}: {rate}" for node, rate in rates.items()))
    assert all(rates.values())


def test_work_whose_agent_is_killed_ends_and_gives_its_memory_back(gpu: GpuSample, host: RealHost) -> None:
    script = (
        "from gameday.host.real import RealHost; from gameday.host.base import HoldMemory; import threading; "
        f"RealHost().start_work({gpu.index}, HoldMemory(leave_bytes={2 * _GIB})); print('in', flush=True); "
        "threading.Event().wait()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout
        assert agent.stdout.readline() == "in\n"
        assert host.has_work(gpu.index)
        agent.send_signal(signal.SIGKILL)
    assert until(lambda: not workers(Path("/proc"), gpu.index), 15)
    assert_given_back(host, gpu)
