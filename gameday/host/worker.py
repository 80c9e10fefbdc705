"""`python -m gameday.host.worker --gpu=N`: the process that works on a GPU while a fault is in.

The first line on standard input is the order, as JSON. Every later line is the share of time for which a burn runs; a
burn that gets no more lines ends itself. Every line on standard output is a report. When standard input ends, the agent
is dead or ends the work. The process then exits immediately, even in the middle of a kernel: the driver frees
everything that it held.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, BinaryIO

from gameday.host.base import (
    WORK_ORDER,
    AllReduce,
    AllReduceOverNodes,
    Burn,
    CopyToGpu,
    Crash,
    HoldMemory,
    ProbeMemory,
    ProveMemory,
    WorkOrder,
    WorkReport,
)
from gameday.host.cpus import format_cpus
from gameday.host.cuda_crash import crash
from gameday.host.load import Gemm, element_type, timed
from gameday.host.nccl_all_reduce import all_reduce
from gameday.host.nccl_over_nodes import is_about_network, last_warning, prepare, take_part
from gameday.host.numa_memory import BoundMemory
from gameday.host.nvml_events import xid_events
from gameday.host.work import STEERING_TIMEOUT_S

REPORT_EVERY_S = 0.5
_SLICE_S = 0.1
"""A burn keeps its share of time within each slice. NVML's utilisation averages over longer (1/6 s to 1 s)."""
_SIZE = 8192
"""Rows and columns of a matrix, as in gameday.host.load."""
_COPY_BYTES = 256 << 20
"""Many times the size of a last-level cache, but small enough for some hundred copies a second."""
_PROVED_BLOCK_BYTES = 64 << 20
"""Small compared with the memory left free, since a comparison takes several more blocks."""
_MIB = 1 << 20
_NO_MPS = "/nonexistent"
"""A process that finds no MPS daemon under this path gets a CUDA context of its own (docs/sources.md, Real Xids)."""
_CHECK_EVERY_S = 0.5


class Worker:
    """Work on one GPU; it runs in the calling thread, and another thread may steer it."""

    def __init__(
        self, cupy: ModuleType, gpu: int, order: WorkOrder, out: BinaryIO, nccl_log: int | None = None
    ) -> None:
        """Prepare the work. Reports go to `out` as lines of JSON; `nccl_log` is the descriptor of NCCL's messages."""
        self.utilization = order.utilization if isinstance(order, Burn) else 1.0
        self.steered_at, self.is_burning = 0.0, False
        self.ended = threading.Event()
        self._cupy = cupy
        self._gpu = gpu
        self._order = order
        self._out = out
        self._began = time.monotonic()
        self._figures: dict[str, Any] = {}
        self._nccl_log = nccl_log

    def run(self) -> None:
        """Work until `ended` is set. Raises CuPy's own errors, OSError and MemoryError."""
        with self._cupy.cuda.Device(self._gpu):
            match self._order:
                case Burn():
                    self._burn(self._order)
                case HoldMemory():
                    self._hold(self._order)
                case CopyToGpu():
                    self._copy(self._order)
                case ProveMemory():
                    self._prove(self._order)
                case ProbeMemory():
                    self._probe()
                case AllReduce():
                    self._all_reduce(self._order)
                case AllReduceOverNodes():
                    self._all_reduce_over_nodes(self._order)
                case Crash(kernel=kernel):
                    self.report(crash=crash(self._cupy, kernel, partial(xid_events, self._gpu)))
                    self.ended.wait()

    def steer(self, utilization: float) -> None:
        """Set the share of time for which a burn runs, 0 to 1."""
        self.utilization = min(1.0, max(0.0, utilization))
        self.steered_at = time.monotonic()

    def report(self, **figures: Any) -> None:
        """Write a report with these fields of WorkReport."""
        self._figures = figures
        line = WorkReport(seconds=round(time.monotonic() - self._began, 3), **figures).model_dump_json(
            exclude_defaults=True
        )
        self._out.write(line.encode() + b"\n")
        self._out.flush()

    def fail(self, error: Exception) -> None:
        """Write the last report: the error, and the figures known before it."""
        why, no_link = f"{type(error).__name__}: {error}", False
        if self._nccl_log is not None:
            why, no_link = f"{why}: {last_warning(self._nccl_log)}", is_about_network(error)
        self.report(**self._figures | {"error": why[:500], "no_link": no_link})

    def _burn(self, order: Burn, size: int = _SIZE) -> None:
        gemm = Gemm(self._cupy, size, element_type(self._cupy, order.precision))
        self.steered_at, self.is_burning = time.monotonic(), True  # the agent steers only after the first report
        products, wrong, reported_at, digest = 1, gemm.first_wrong, 0.0, gemm.digest()
        while not self.ended.is_set():
            until = time.monotonic() + _SLICE_S
            busy, multiplied = 0.0, 0
            while busy < _SLICE_S * self.utilization and not self.ended.is_set():
                busy += gemm.multiply()
                multiplied += 1
            if multiplied:
                products, wrong = products + 1, wrong + gemm.wrong()
            if time.monotonic() - reported_at >= REPORT_EVERY_S:
                reported_at = time.monotonic()
                rate = gemm.flop * multiplied / busy / 1e12 if busy else 0.0
                self.report(tflops=rate, products=products, wrong_results=wrong, digest=digest)
            self.ended.wait(max(0.0, until - time.monotonic()))

    def _hold(self, order: HoldMemory) -> None:
        pool = self._cupy.cuda.MemoryPool()
        kept = take_memory(self._cupy, pool, order)
        largest = largest_block(self._cupy, pool)  # only once: a probe briefly takes memory that others may need
        while not self.ended.is_set():
            self.report(
                held_bytes=pool.total_bytes(),
                unused_bytes=pool.free_bytes(),
                free_bytes=self._cupy.cuda.runtime.memGetInfo()[0],
                largest_block_bytes=largest,
            )
            self.ended.wait(REPORT_EVERY_S)
        del kept

    def _probe(self) -> None:
        largest = largest_block(self._cupy, self._cupy.cuda.MemoryPool())
        while not self.ended.is_set():
            self.report(free_bytes=self._cupy.cuda.runtime.memGetInfo()[0], largest_block_bytes=largest)
            self.ended.wait(REPORT_EVERY_S)

    def _prove(self, order: ProveMemory, block_bytes: int = _PROVED_BLOCK_BYTES) -> None:
        free, _ = self._cupy.cuda.runtime.memGetInfo()
        words = block_bytes // 8
        blocks = [
            self._cupy.empty(words, dtype=self._cupy.uint64) for _ in range((free - order.leave_bytes) // block_bytes)
        ]
        if not blocks:
            raise MemoryError(
                f"{free >> 20} MiB are free, {order.leave_bytes >> 20} MiB are to be left: nothing to prove"
            )
        wrong, first = prove_memory(self._cupy, blocks)
        while not self.ended.is_set():
            self.report(proved_bytes=len(blocks) * block_bytes, wrong_words=wrong, wrong_at=first)
            self.ended.wait(REPORT_EVERY_S)

    def _all_reduce(self, order: AllReduce) -> None:
        bus_gbs, wrong = all_reduce(self._cupy, _nccl(), order.gpus)
        while not self.ended.is_set():
            self.report(bus_gbs=round(bus_gbs, 1), wrong_sums=wrong)
            self.ended.wait(REPORT_EVERY_S)

    def _all_reduce_over_nodes(self, order: AllReduceOverNodes) -> None:
        figures = take_part(self._cupy, _nccl(), self._gpu, order, self.report, self._end_by)
        while not self.ended.is_set():
            self.report(**figures)
            self.ended.wait(REPORT_EVERY_S)

    def _end_by(self, error: Exception) -> None:
        """End the process, because its main thread may wait for NCCL for ever."""
        self.fail(error)
        os._exit(1)

    def _copy(self, order: CopyToGpu, size: int = _COPY_BYTES) -> None:
        try:
            # Before the buffer: pinned pages come from the NUMA node of the thread that allocates them.
            os.sched_setaffinity(0, order.cpus)
        except OSError:
            raise OSError(
                f"this pod's cpuset holds none of the CPUs {format_cpus(order.cpus)}: it is aligned"
            ) from None
        source = _pinned(self._cupy, order.memory_node, size)
        pinned = ctypes.c_void_p(source.ptr)
        target = self._cupy.cuda.alloc(size)

        def copy() -> None:
            target.copy_from_host_async(pinned, size, self._cupy.cuda.Stream.null)

        timed(self._cupy, copy)  # the first copy is slower
        while not self.ended.is_set():
            busy, copies = 0.0, 0
            while busy < REPORT_EVERY_S and not self.ended.is_set():
                busy += timed(self._cupy, copy)
                copies += 1
            if busy:
                self.report(copy_gbs=round(size * copies / busy / 1e9, 2), memory_node=order.memory_node)


def _nccl() -> ModuleType:
    """Return the module cupy.cuda.nccl. Raises ImportError."""
    nccl = import_module("cupy.cuda.nccl")
    if not nccl.available:
        raise ImportError("NCCL cannot be loaded; install gpu-gameday[gpu] in the agent's image")
    return nccl


def _pinned(cupy: ModuleType, node: int | None, size: int) -> Any:
    """Return pinned host memory with its address as `ptr`, all of it on the NUMA node if one is named.

    Raises OSError if the kernel does not give memory of that node.
    """
    if node is None:
        return cupy.cuda.alloc_pinned_memory(size)
    memory = BoundMemory(size, node)
    cupy.cuda.runtime.hostRegister(memory.ptr, size, 0)  # the pages are there already, and stay where they are
    return memory


def prove_memory(cupy: ModuleType, blocks: Sequence[Any]) -> tuple[int, int | None]:
    """Write each pattern over all blocks, then read all of them back.

    The patterns are each word's own address, which finds words that share a cell; its complement, so that every bit is
    once 0 and once 1; and a walking one.

    Args:
        cupy: The CuPy module.
        blocks: Arrays of uint64 of one size.

    Returns:
        The number of words that did not keep a pattern, and the first one's offset in bytes over all blocks; None if
            all did.
    """
    wrong, first = 0, None
    patterns: tuple[Callable[[Any], Any], ...] = (
        lambda at: at * 8,
        lambda at: ~(at * 8),
        lambda at: cupy.uint64(1) << (at % cupy.uint64(64)),
    )
    for pattern in patterns:
        starts = range(0, sum(block.size for block in blocks), blocks[0].size if blocks else 1)
        for start, block in zip(starts, blocks, strict=True):
            block[:] = pattern(cupy.arange(start, start + block.size, dtype=cupy.uint64))
        for start, block in zip(starts, blocks, strict=True):
            held = pattern(cupy.arange(start, start + block.size, dtype=cupy.uint64))
            places = cupy.flatnonzero(block != held)
            if places.size:
                wrong += int(places.size)
                offset = 8 * (start + int(places[0]))
                first = offset if first is None else min(first, offset)
    return wrong, first


def take_memory(cupy: ModuleType, pool: Any, order: HoldMemory) -> list[Any]:
    """Take the memory of the order.

    Args:
        cupy: The CuPy module.
        pool: The memory pool to take it from.
        order: The bytes to leave free, and the size of blocks.

    Returns:
        One piece of memory; with blocks, every other block of it.

    Raises:
        MemoryError: Too little is free.
        OutOfMemoryError: CuPy's own error: another process was faster.
    """
    free, _ = cupy.cuda.runtime.memGetInfo()
    size = free - order.leave_bytes
    if size < (order.block_bytes or _MIB) * 4:
        raise MemoryError(
            f"{free >> 20} MiB are free and {order.leave_bytes >> 20} MiB are to be left: nothing to take"
        )
    whole = pool.malloc(size)
    if order.block_bytes is None:
        return [whole]
    # The piece goes back to the pool, which splits it for the blocks. A split piece cannot go back to the GPU.
    del whole
    blocks = [pool.malloc(order.block_bytes) for _ in range(size // order.block_bytes)]
    del blocks[::2]
    return blocks


def largest_block(cupy: ModuleType, pool: Any) -> int:
    """Return the bytes of the largest allocation that succeeds now, rounded down to a mebibyte."""
    low, high = 0, (cupy.cuda.runtime.memGetInfo()[0] + pool.free_bytes()) // _MIB
    while low < high:
        middle = (low + high + 1) // 2
        try:
            pool.malloc(middle * _MIB)
            low = middle
        except cupy.cuda.memory.OutOfMemoryError:
            high = middle - 1
        pool.free_all_blocks()  # gives the probe's memory back to the GPU
    return low * _MIB


def _follow_input(worker: Worker, lines: BinaryIO) -> None:
    """Steer the worker by the lines, and end the process when they end."""
    for line in lines:
        worker.steer(float(line))
    os._exit(0)


def _end_unsteered_burn(worker: Worker) -> None:
    """End the process if a burn is not steered in time; in its own thread, in case the burn's kernel hangs."""
    while time.monotonic() - worker.steered_at < STEERING_TIMEOUT_S or not worker.is_burning:
        time.sleep(_CHECK_EVERY_S)
    _report_error(f"nobody has watched the temperature for {STEERING_TIMEOUT_S:g} s, so the load has ended")
    os._exit(1)


def main() -> int:
    """Do the work that standard input orders, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", type=int, required=True)
    gpu = parser.parse_args().gpu
    order = WORK_ORDER.validate_json(sys.stdin.buffer.readline())
    if isinstance(order, Crash):
        os.environ["CUDA_MPS_PIPE_DIRECTORY"] = _NO_MPS
    try:
        nccl_log = prepare(order) if isinstance(order, AllReduceOverNodes) else None
        cupy = import_module("cupy")  # the optional extra
    except OSError as error:
        return _report_error(f"the host's network cannot be entered: {error.strerror}; run the agent privileged")
    except ImportError as error:
        return _report_error(f"CuPy cannot be imported ({error}); install gpu-gameday[gpu] in the agent's image")
    worker = Worker(cupy, gpu, order, sys.stdout.buffer, nccl_log)
    threading.Thread(target=_follow_input, args=(worker, sys.stdin.buffer), daemon=True).start()
    threading.Thread(target=_end_unsteered_burn, args=(worker,), daemon=True).start()
    try:
        worker.run()
    except Exception as error:  # CuPy has its own error types for CUDA, cuBLAS and memory
        worker.fail(error)
        return 1
    return 0


def _report_error(why: str) -> int:
    sys.stdout.buffer.write(WorkReport(seconds=0, error=why).model_dump_json(exclude_defaults=True).encode() + b"\n")
    sys.stdout.buffer.flush()
    return 1


if __name__ == "__main__":
    sys.exit(main())
