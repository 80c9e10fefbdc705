"""`python -m gameday.host.worker --gpu=N`: the process that holds a GPU while a fault is in.

The order is the first line on standard input, as JSON; later lines give a
burn's share of the time, each time anew: a burn that nobody watches any more
ends. Reports are lines on standard output. When standard input ends, the agent
is dead or wants an end, and the process leaves at once, in the middle of a
kernel if need be: the driver then frees whatever it held.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import threading
import time
from importlib import import_module
from types import ModuleType
from typing import Any, BinaryIO

from gameday.host.base import WORK_ORDER, Burn, CopyToGpu, HoldMemory, WorkOrder, WorkReport
from gameday.host.cpus import format_cpus
from gameday.host.load import Gemm, timed
from gameday.host.work import UNWATCHED_FOR_S

REPORT_EVERY_S = 0.5
_SLICE_S = 0.1
"""A burn's share of the time is kept within each slice: NVML's utilisation averages over longer (1/6 s to 1 s)."""
_SIZE = 8192
_COPY_BYTES = 256 << 20
"""Many times what a last-level cache holds of a write-combined buffer, short enough for some hundred a second."""
_GRAIN_BYTES = 1 << 20
_MOMENT_S = 0.5


class Worker:
    """`utilization` and `watched_at` are set from outside, by whoever reads standard input."""

    def __init__(self, cupy: ModuleType, gpu: int, order: WorkOrder, out: BinaryIO) -> None:
        self.utilization = order.utilization if isinstance(order, Burn) else 1.0
        self.watched_at, self.burning = 0.0, False
        self.ended = threading.Event()
        self._cupy = cupy
        self._gpu = gpu
        self._order = order
        self._out = out
        self._began = time.monotonic()

    def run(self) -> None:
        """Until `ended`; raises whatever CuPy raises."""
        with self._cupy.cuda.Device(self._gpu):
            match self._order:
                case Burn():
                    self._burn(self._order)
                case HoldMemory():
                    self._hold(self._order)
                case CopyToGpu():
                    self._copy(self._order)

    def report(self, **figures: Any) -> None:
        line = WorkReport(seconds=round(time.monotonic() - self._began, 3), **figures).model_dump_json(
            exclude_defaults=True
        )
        self._out.write(line.encode() + b"\n")
        self._out.flush()

    def _burn(self, order: Burn, size: int = _SIZE) -> None:
        gemm = Gemm(self._cupy, size, self._cupy.float16 if order.precision == "half" else self._cupy.float32)
        self.watched_at, self.burning = time.monotonic(), True  # nobody watches before the first report
        products, wrong, told = 1, gemm.wrong(), 0.0
        while not self.ended.is_set():
            until = time.monotonic() + _SLICE_S
            busy, multiplied = 0.0, 0
            while busy < _SLICE_S * self.utilization and not self.ended.is_set():
                busy += gemm.multiply()
                multiplied += 1
            if multiplied:
                products, wrong = products + 1, wrong + gemm.wrong()
            if time.monotonic() - told >= REPORT_EVERY_S:
                told = time.monotonic()
                rate = gemm.flop * multiplied / busy / 1e12 if busy else 0.0
                self.report(tflops=rate, products=products, wrong_results=wrong)
            self.ended.wait(max(0.0, until - time.monotonic()))

    def _hold(self, order: HoldMemory) -> None:
        pool = self._cupy.cuda.MemoryPool()
        kept = take_memory(self._cupy, pool, order)
        largest = largest_block(self._cupy, pool)  # once: each probe takes for a moment what others may want
        while not self.ended.is_set():
            self.report(
                held_bytes=pool.total_bytes(),
                unused_bytes=pool.free_bytes(),
                free_bytes=self._cupy.cuda.runtime.memGetInfo()[0],
                largest_block_bytes=largest,
            )
            self.ended.wait(REPORT_EVERY_S)
        del kept

    def _copy(self, order: CopyToGpu, size: int = _COPY_BYTES) -> None:
        try:
            # Before the buffer: pinned pages are taken from the node of the thread that asks for them.
            os.sched_setaffinity(0, order.cpus)
        except OSError:
            raise OSError(
                f"this pod's cpuset holds none of the CPUs {format_cpus(order.cpus)}: it is aligned"
            ) from None
        source = self._cupy.cuda.alloc_pinned_memory(size)
        pinned = ctypes.c_void_p(source.ptr)
        target = self._cupy.cuda.alloc(size)

        def copy() -> None:
            target.copy_from_host_async(pinned, size, self._cupy.cuda.Stream.null)

        timed(self._cupy, copy)  # the first touch
        while not self.ended.is_set():
            busy, copies = 0.0, 0
            while busy < REPORT_EVERY_S and not self.ended.is_set():
                busy += timed(self._cupy, copy)
                copies += 1
            if busy:
                self.report(copy_gbs=round(size * copies / busy / 1e9, 2))


def take_memory(cupy: ModuleType, pool: Any, order: HoldMemory) -> list[Any]:
    """All that is free but `leave_bytes`, as one piece; cut into blocks and every other one freed, where asked for.

    Raises CuPy's OutOfMemoryError, MemoryError where nothing is left to take.
    """
    free, _ = cupy.cuda.runtime.memGetInfo()
    size = free - order.leave_bytes
    if size < (order.block_bytes or _GRAIN_BYTES) * 4:
        raise MemoryError(
            f"{free >> 20} MiB are free and {order.leave_bytes >> 20} MiB are to be left: nothing to take"
        )
    whole = pool.malloc(size)
    if order.block_bytes is None:
        return [whole]
    # Freed into the pool, the one piece is split for every block asked for, and cannot go back to the GPU any more.
    del whole
    blocks = [pool.malloc(order.block_bytes) for _ in range(size // order.block_bytes)]
    del blocks[::2]
    return blocks


def largest_block(cupy: ModuleType, pool: Any) -> int:
    """Bytes of the largest allocation that succeeds now, to a mebibyte."""
    low, high = 0, (cupy.cuda.runtime.memGetInfo()[0] + pool.free_bytes()) // _GRAIN_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        try:
            pool.malloc(middle * _GRAIN_BYTES)
            low = middle
        except cupy.cuda.memory.OutOfMemoryError:
            high = middle - 1
        pool.free_all_blocks()  # what only the probe took goes back to the GPU
    return low * _GRAIN_BYTES


def _obey(worker: Worker, lines: BinaryIO) -> None:
    for line in lines:
        worker.utilization = min(1.0, max(0.0, float(line)))
        worker.watched_at = time.monotonic()
    os._exit(0)


def _require_watch(worker: Worker) -> None:
    """Beside the burn, so that it also ends one whose kernel hangs."""
    while time.monotonic() - worker.watched_at < UNWATCHED_FOR_S or not worker.burning:
        time.sleep(_MOMENT_S)
    _refuse(f"nobody has watched the temperature for {UNWATCHED_FOR_S:g} s: the load was ended")
    os._exit(1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", type=int, required=True)
    gpu = parser.parse_args().gpu
    order = WORK_ORDER.validate_json(sys.stdin.buffer.readline())
    try:
        cupy = import_module("cupy")  # the optional extra
    except ImportError as error:
        return _refuse(f"CuPy cannot be imported ({error}); install gpu-gameday[gpu] in the agent's image")
    worker = Worker(cupy, gpu, order, sys.stdout.buffer)
    threading.Thread(target=_obey, args=(worker, sys.stdin.buffer), daemon=True).start()
    threading.Thread(target=_require_watch, args=(worker,), daemon=True).start()
    try:
        worker.run()
    except Exception as error:  # CuPy raises a family of its own for CUDA, cuBLAS and memory
        return _refuse(f"{type(error).__name__}: {error}"[:500])
    return 0


def _refuse(why: str) -> int:
    sys.stdout.buffer.write(WorkReport(seconds=0, error=why).model_dump_json(exclude_defaults=True).encode() + b"\n")
    sys.stdout.buffer.flush()
    return 1


if __name__ == "__main__":
    sys.exit(main())
