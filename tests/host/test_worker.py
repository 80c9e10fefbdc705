"""The worker's work with NumPy instead of CuPy, and its process: orders, steering, ends."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gameday.host.base import Burn, CopyToGpu, HoldMemory, ProbeMemory, WorkOrder, WorkReport
from gameday.host.numa_memory import BoundMemory
from gameday.host.worker import Worker, _end_unsteered_burn, largest_block, prove_memory, take_memory
from tests.host.test_load import FakeCupy

MIB = 1 << 20


class OutOfMemoryError(Exception):
    pass


class Pool:
    """A small model of CuPy's memory pool: freed memory stays reserved, and a split piece stays in the pool."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._reserved = 0
        self._used = 0
        self._split = 0

    def malloc(self, size: int) -> Piece:
        if size <= self.free_bytes() and (not self._split or size <= self._split):
            if size < self._reserved:
                self._split = self._split or size
        else:
            if size > self._device.free:
                raise OutOfMemoryError(size)
            self._device.free -= size
            self._reserved += size
        self._used += size
        return Piece(lambda: self._give_back(size))

    def _give_back(self, size: int) -> None:
        self._used -= size

    def free_all_blocks(self) -> None:
        if not self._split:
            self._device.free += self._reserved - self._used
            self._reserved = self._used

    def total_bytes(self) -> int:
        return self._reserved

    def free_bytes(self) -> int:
        return self._reserved - self._used


class Piece:
    def __init__(self, freed: Callable[[], None]) -> None:
        self._freed = freed

    def __del__(self) -> None:
        self._freed()


class Device:
    def __init__(self, free: int) -> None:
        self.free = free


class Gpu(FakeCupy):
    """NumPy with a GPU of 1 GiB."""

    def __init__(self, flip: bool = False) -> None:
        super().__init__(flip)
        device = Device(1024 * MIB)
        self.pool = Pool(device)
        self.copies = 0
        self.cuda.MemoryPool = lambda: self.pool
        self.cuda.memory = SimpleNamespace(OutOfMemoryError=OutOfMemoryError)
        self.cuda.runtime = SimpleNamespace(memGetInfo=lambda: (device.free, 1024 * MIB))
        self.cuda.alloc_pinned_memory = lambda size: SimpleNamespace(ptr=4096)
        self.cuda.alloc = lambda size: SimpleNamespace(copy_from_host_async=self._copy)

    def _copy(self, *_: Any) -> None:
        self.copies += 1


class Out(io.BytesIO):
    """An output that ends the work after some reports."""

    def __init__(self, reports: int) -> None:
        super().__init__()
        self.left, self.end = reports, threading.Event()

    def flush(self) -> None:
        self.left -= 1
        if not self.left:
            self.end.set()


def work(order: WorkOrder, cupy: Gpu, monkeypatch: pytest.MonkeyPatch, reports: int = 2) -> list[WorkReport]:
    monkeypatch.setattr("gameday.host.worker.REPORT_EVERY_S", 0.01)
    out = Out(reports)
    worker = Worker(cupy, 3, order, out)
    worker.ended = out.end
    worker.run()
    return [WorkReport.model_validate_json(line) for line in out.getvalue().splitlines()]


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker._burn, "__defaults__", (64,))
    monkeypatch.setattr("gameday.host.worker._SLICE_S", 0.01)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("precision", ["half", "bf16", "single"])
def test_a_burn_multiplies_and_checks_its_products(precision: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reports = work(Burn(precision=precision), Gpu(), monkeypatch)
    assert all(report.tflops and not report.wrong_results for report in reports)
    assert reports[1].products > reports[0].products


@pytest.mark.usefixtures("_small")
def test_a_wrong_element_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert work(Burn(), Gpu(flip=True), monkeypatch)[-1].wrong_results >= 2


@pytest.mark.usefixtures("_small")
def test_a_burn_without_a_share_of_the_time_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = work(Burn(utilization=0), Gpu(), monkeypatch)
    assert [report.tflops for report in reports] == [0.0, 0.0]


def test_all_memory_but_the_rest_to_leave_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    (report,) = work(HoldMemory(leave_bytes=100 * MIB), Gpu(), monkeypatch, reports=1)
    assert (report.held_bytes, report.unused_bytes) == (924 * MIB, 0)
    assert (report.free_bytes, report.largest_block_bytes) == (100 * MIB, 100 * MIB)


def test_fragmented_memory_is_reserved_and_has_no_large_block() -> None:
    cupy = Gpu()
    kept = take_memory(cupy, cupy.pool, HoldMemory(leave_bytes=2 * MIB, block_bytes=16 * MIB))
    assert len(kept) == 31
    assert cupy.pool.free_bytes() > 500 * MIB
    assert largest_block(cupy, cupy.pool) == 16 * MIB


def test_a_probe_finds_the_largest_block_and_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = Gpu()
    (report,) = work(ProbeMemory(), cupy, monkeypatch, reports=1)
    assert (report.free_bytes, report.largest_block_bytes, report.held_bytes) == (1024 * MIB, 1024 * MIB, None)
    assert cupy.pool.total_bytes() == 0


def test_a_full_gpu_has_nothing_to_take() -> None:
    with pytest.raises(MemoryError, match="nothing to take"):
        take_memory(Gpu(), None, HoldMemory(leave_bytes=1022 * MIB))


def test_a_copy_runs_on_the_cpus_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[Any] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: bound.append((pid, cpus)))
    cupy = Gpu()
    (report,) = work(CopyToGpu(cpus=(4, 5)), cupy, monkeypatch, reports=1)
    assert bound == [(0, (4, 5))]
    assert report.copy_gbs
    assert cupy.copies > 1


def test_a_copy_from_a_node_pins_memory_that_is_bound_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: None)
    monkeypatch.setattr(Worker._copy, "__defaults__", (1 << 20,))
    cupy, pinned = Gpu(), list[tuple[int, int, int]]()
    cupy.cuda.runtime.hostRegister = lambda *given: pinned.append(given)
    bound: list[BoundMemory] = []
    monkeypatch.setattr(
        "gameday.host.worker.BoundMemory", lambda size, node: bound.append(BoundMemory(size, node)) or bound[0]
    )
    (report,) = work(CopyToGpu(cpus=(0,), memory_node=0), cupy, monkeypatch, reports=1)
    assert report.memory_node == 0 and report.copy_gbs is not None
    assert pinned == [(bound[0].ptr, 1 << 20, 0)]


def test_cpus_outside_the_pods_cpuset_are_an_error_that_names_them() -> None:
    with pytest.raises(OSError, match="this pod's cpuset holds none of the CPUs 4094-4095"):
        Worker(Gpu(), 3, CopyToGpu(cpus=(4094, 4095)), io.BytesIO()).run()


def process(order: dict[str, Any], script: str = "") -> subprocess.Popen[bytes]:
    """Start the worker as the agent does; `script` runs before it in the same interpreter."""
    run = "import sys, runpy; sys.argv = ['w', '--gpu=3']; runpy.run_module('gameday.host.worker', run_name='__main__')"
    started = subprocess.Popen(
        [sys.executable, "-c", f"{script}\n{run}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert started.stdin
    started.stdin.write(json.dumps(order).encode() + b"\n")
    started.stdin.flush()
    return started


def test_without_cupy_the_worker_says_what_to_install_and_ends() -> None:
    started = process({"kind": "burn"}, "import sys; sys.modules['cupy'] = None")
    out, _ = started.communicate(timeout=30)
    assert started.returncode == 1
    assert "install gpu-gameday[gpu]" in WorkReport.model_validate_json(out).error


_HANGING_CUPY = """
import sys, time, types
hangs = types.ModuleType('cupy')
hangs.cuda = types.SimpleNamespace(Device=lambda gpu: time.sleep(60))
sys.modules['cupy'] = hangs
"""


def test_the_process_ends_with_its_standard_input_in_the_middle_of_its_work() -> None:
    started = process({"kind": "burn"}, _HANGING_CUPY)
    assert started.stdin
    assert started.stdout
    started.stdin.close()
    assert started.wait(30) == 0
    started.stdout.close()


def test_a_burn_that_is_not_steered_ends_and_reports_why(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    class Gone(BaseException):
        pass

    def leave(status: int) -> None:
        raise Gone(status)

    monkeypatch.setattr("gameday.host.worker.STEERING_TIMEOUT_S", 0.0)
    monkeypatch.setattr(os, "_exit", leave)
    worker = Worker(Gpu(), 3, Burn(), io.BytesIO())
    worker.is_burning = True
    with pytest.raises(Gone):
        _end_unsteered_burn(worker)
    assert "nobody has watched the temperature" in capfdbinary.readouterr().out.decode()


class Faulty(np.ndarray[Any, Any]):
    """Memory in which one word has a bit that stays 0."""

    def __setitem__(self, at: Any, value: Any) -> None:
        super().__setitem__(at, value)
        view = np.asarray(self)
        view[5] &= ~np.uint64(1 << 6)


def test_patterns_over_the_memory_find_one_bit_that_stays_0_and_its_place() -> None:
    good = [np.empty(1024, np.uint64) for _ in range(3)]
    assert prove_memory(FakeCupy(), good) == (0, None)
    # Its address, 8 * (2 * 1024 + 5), has bit 6 clear: only the complement needs the bit.
    assert prove_memory(FakeCupy(), [*good[:2], good[2].view(Faulty)]) == (1, 8 * (2 * 1024 + 5))


def test_two_words_that_share_a_cell_are_found() -> None:
    block = np.empty(1024, np.uint64)
    assert prove_memory(FakeCupy(), [block, block])[0] >= 1024
