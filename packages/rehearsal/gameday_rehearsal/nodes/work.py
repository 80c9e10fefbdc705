"""Continuous work on the model: the virtual counterpart of gameday.host.worker, with the same reports.

A request that is answered line by line is the work's process: it begins with the request and ends with the
connection, when either side closes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from itertools import count

from gameday.errors import HostError
from gameday.host.base import (
    AllReduce,
    AllReduceOverNodes,
    Burn,
    CopyToGpu,
    Crash,
    CrashReport,
    HoldMemory,
    ProbeMemory,
    ProveMemory,
    WorkOrder,
    WorkReport,
)
from gameday.host.cpus import parse_cpus
from gameday.host.work import STEERING_TIMEOUT_S
from gameday.host.worker import largest_block, take_memory
from gameday_rehearsal.nodes.cuda_crash import crash
from gameday_rehearsal.nodes.device_memory import OutOfMemoryError, Pool, allocator
from gameday_rehearsal.nodes.gpus import FAR_SHARE, LOAD_TAKES_MIB
from gameday_rehearsal.nodes.machine import MIB, Machine
from gameday_rehearsal.nodes.nccl_over_nodes import joined, leave, progress, start_error
from gameday_rehearsal.nodes.numa import CPUS_OF_NODE, numa_node

_REPORT_EVERY_S = 0.25
"""Interval of the reports; also the time within which a lost connection ends the work."""
_PRODUCTS_PER_S = 10
_DIGEST = 0x5EED0000
_COPY_LOAD = 0.05
"""Load of the GPU during a copy, which keeps a copy engine busy and no SM."""
_COMMAND = "python -m gameday.host.worker --gpu={}"
_PIDS = count(2_000_000)
"""Every process has another id, which a crash leaves in the kernel log."""


class ModelWork:
    """Work on one GPU of a machine, from its beginning to `stop`."""

    def __init__(self, machine: Machine, gpu: int, order: WorkOrder) -> None:
        self.ended = asyncio.Event()
        self._machine = machine
        self._gpu = gpu
        self._cell = machine.cell(gpu)
        self._order = order
        self._boot_id = machine.boot_id
        self._now = machine.fleet.clock
        self._began = self._watched_at = self._checked_at = self._now()
        self._wrong = 0.0
        self._pool = Pool(machine.fleet, self._cell)
        self._blocks: list[object] = []
        self._largest = 0
        self._pid = next(_PIDS)
        self._crash: CrashReport | None = None
        self._unique_id = order.unique_id if isinstance(order, AllReduceOverNodes) else ""
        if isinstance(order, CopyToGpu) and order.memory_node not in (None, *CPUS_OF_NODE):
            raise HostError(f"OSError: no memory can be bound to NUMA node {order.memory_node} (Invalid argument)")
        if isinstance(order, AllReduce) and (lost := [at for at in order.gpus if machine.fleet.lost[machine.cell(at)]]):
            raise HostError(f"NcclError: NCCL_ERROR_UNHANDLED_CUDA_ERROR: unhandled cuda error (GPU {lost[0]})")
        if isinstance(order, Burn) and machine.fleet.memory_free_mib(self._cell) < LOAD_TAKES_MIB:
            raise HostError(f"OutOfMemoryError: Out of memory allocating {LOAD_TAKES_MIB * MIB:,} bytes")

    def begin(self) -> None:
        """Begin. Raises HostError in the words of the real worker's error."""
        if isinstance(self._order, HoldMemory | ProbeMemory):
            self._allocate(self._order)
        if isinstance(self._order, AllReduceOverNodes):
            self._unique_id, self._communicator = joined(self._machine, self._order)
        self._machine.works[self._gpu] = self
        self._machine.gpu_processes.setdefault(self._gpu, {})[self._pid] = _COMMAND.format(self._gpu)
        if isinstance(self._order, Crash):
            self._crash = crash(self._machine, self._gpu, self._order.kernel, self._pid)
        if isinstance(self._order, Burn | CopyToGpu | ProveMemory):
            load = self._order.utilization if isinstance(self._order, Burn) else _COPY_LOAD
            self._machine.fleet.set_work_load(self._cell, load)

    def stop(self) -> None:
        """Stop the work. Idempotent; after a reboot only its name is left."""
        if self._machine.works.get(self._gpu) is not self:
            return
        del self._machine.works[self._gpu]
        self.ended.set()
        if isinstance(self._order, AllReduceOverNodes):
            leave(self._machine, self._unique_id, self._order.rank)
        self._machine.fleet.set_work_load(self._cell, 0.0)
        if self._machine.boot_id == self._boot_id:
            self._machine.gpu_processes.get(self._gpu, {}).pop(self._pid, None)
            self._machine.fleet.held_mib[self._cell] -= self._pool.total_mib()

    def steer(self, utilization: float) -> None:
        """Change the burn's load. Raises HostError for work that is not a burn."""
        if not isinstance(self._order, Burn):
            raise HostError(f"the work on GPU {self._gpu} is no burn: its load cannot be changed")
        self._watched_at = self._now()
        self._machine.fleet.set_work_load(self._cell, utilization)

    def report(self) -> WorkReport:  # noqa: PLR0911 - one for each kind of order
        """Return a report; it has an `error` if the work cannot go on."""
        seconds = round(self._now() - self._began, 3)
        if why := self._why_over():
            return WorkReport(seconds=seconds, error=why)
        fleet = self._machine.fleet
        fleet.advance()
        match self._order:
            case Burn(precision=precision):
                others = max(float(fleet.pod_load[self._cell]), float(fleet.burst_load[self._cell]))
                rate = fleet.gemm_tflops(self._cell, others) if fleet.work_load[self._cell] else 0.0
                return WorkReport(
                    seconds=seconds,
                    digest=f"{_DIGEST + int(fleet.wrong_results[self._cell]):08x}",
                    tflops=round(rate * _SINGLE_SHARE if precision == "single" else rate, 1),
                    products=1 + round(seconds * _PRODUCTS_PER_S),
                    wrong_results=int(fleet.wrong_results[self._cell]) + self._wrong_bits(),
                )
            case HoldMemory() | ProbeMemory():
                return self._memory(seconds)
            case CopyToGpu(cpus=cpus, memory_node=node):
                own = numa_node(self._gpu, len(self._machine.gpus))
                near = parse_cpus(CPUS_OF_NODE[own])
                # The link carries what the memory gives, for any CPU that starts the copy; unbound pages are the CPUs'.
                by_cpus = sum(1.0 if cpu in near else FAR_SHARE for cpu in cpus) / len(cpus)
                share = by_cpus if node is None else 1.0 if node == own else FAR_SHARE
                copied = fleet.link_gbs(self._cell) * share
                return WorkReport(seconds=seconds, copy_gbs=round(copied, 2), memory_node=node)
            case ProveMemory(leave_bytes=leave):
                proved = fleet.memory_free_mib(self._cell) * MIB - leave
                at = int(fleet.bad_word_at[self._cell])
                found = at if 0 <= at < proved else None
                wrong = int(found is not None)
                return WorkReport(seconds=seconds, proved_bytes=proved, wrong_words=wrong, wrong_at=found)
            case AllReduce(gpus=gpus):
                return self._all_reduce(seconds, gpus)
            case AllReduceOverNodes():
                return self._all_reduce_over_nodes(seconds, self._order)
            case Crash():
                return WorkReport(seconds=seconds, crash=self._crash)

    def _all_reduce(self, seconds: float, gpus: tuple[int, ...]) -> WorkReport:
        """Let the GPU with the weakest links set the pace; one that computes wrongly also adds wrongly."""
        fleet, cells = self._machine.fleet, [self._machine.cell(gpu) for gpu in gpus]
        gbs = _ALL_REDUCE_SHARE * min(fleet.nvlinks_gbs(cell) for cell in cells) or WITHOUT_NVLINK_GBS
        wrong = sum(int(fleet.wrong_results[cell]) for cell in cells)
        return WorkReport(seconds=seconds, bus_gbs=round(gbs, 1), wrong_sums=wrong)

    def _all_reduce_over_nodes(self, seconds: float, order: AllReduceOverNodes) -> WorkReport:
        figures, error = progress(self._communicator)
        if not figures:
            error = error or start_error(self._machine, order)
        made = "" if order.rank else self._unique_id
        wrong = int(self._machine.fleet.wrong_results[self._cell]) if figures else 0
        return WorkReport(
            seconds=seconds, unique_id=made, wrong_sums=wrong, error=error, no_link=bool(error), **figures
        )

    def _why_over(self) -> str:
        if not self._machine.powered or self._machine.boot_id != self._boot_id:
            return "the machine went down"
        if isinstance(self._order, Burn) and self._now() - self._watched_at > STEERING_TIMEOUT_S:
            return f"nobody has watched the temperature for {STEERING_TIMEOUT_S:g} s, so the load has ended"
        return "" if self._machine.gpu_serves(self._gpu) else "CUDARuntimeError: cudaErrorDevicesUnavailable"

    def _wrong_bits(self) -> int:
        """Count the wrong bits so far: by the rate of wrong products, and on a hot GPU one for each product."""
        fleet, now = self._machine.fleet, self._now()
        products, self._checked_at = (now - self._checked_at) * _PRODUCTS_PER_S, now
        if fleet.wrong_every[self._cell]:
            self._wrong += products / float(fleet.wrong_every[self._cell])
        if fleet.temperature[self._cell] > fleet.wrong_above_c[self._cell]:
            self._wrong += products
        return int(self._wrong)

    def _memory(self, seconds: float) -> WorkReport:
        return WorkReport(
            seconds=seconds,
            held_bytes=self._pool.total_bytes(),
            unused_bytes=self._pool.free_bytes(),
            free_bytes=self._machine.fleet.memory_free_mib(self._cell) * MIB,
            largest_block_bytes=self._largest,
        )

    def _allocate(self, order: HoldMemory | ProbeMemory) -> None:
        """Do with the model's memory what the real worker does with the GPU's. Raises HostError."""
        memory = allocator(self._machine.fleet, self._cell)
        try:
            self._blocks = take_memory(memory, self._pool, order) if isinstance(order, HoldMemory) else []
            self._largest = largest_block(memory, self._pool)
        except (MemoryError, OutOfMemoryError) as error:
            self._machine.fleet.held_mib[self._cell] -= self._pool.total_mib()  # the process ends by it
            raise HostError(f"{type(error).__name__}: {error}") from None


_ALL_REDUCE_SHARE = 0.98
"""Share of the links' rate: 470 GB/s with eight H100, within the measured range (docs/sources.md, H100 figures)."""
WITHOUT_NVLINK_GBS = 40.0
"""Bus bandwidth over PCIe, within the range measured without NVSwitch (docs/sources.md, H100 figures)."""
_SINGLE_SHARE = 67 / 989
"""FP32 without tensor cores to dense BF16: the H100 SXM data sheet's 67 and 989 TFLOP/s."""


async def run_work(machine: Machine, gpu: int, order: WorkOrder) -> AsyncGenerator[WorkReport, None]:
    """Yield reports until the work ends by itself, or the generator is closed. Raises HostError if it cannot begin."""
    if gpu in machine.works:
        raise HostError(f"GPU {gpu} of {machine.name} has work already")
    if machine.fleet.lost[machine.cell(gpu)]:
        raise HostError(f"CUDARuntimeError: GPU {gpu} of {machine.name} is lost")
    work = ModelWork(machine, gpu, order)
    work.begin()
    try:
        while not work.ended.is_set():
            report = work.report()
            yield report
            if report.error:
                return
            await _pause(work)
    finally:
        work.stop()


async def _pause(work: ModelWork) -> None:
    try:
        async with asyncio.timeout(_REPORT_EVERY_S):
            await work.ended.wait()
    except TimeoutError:
        return


def end_work(machine: Machine, gpu: int) -> None:
    """End the GPU's work, for any caller. Idempotent."""
    if work := machine.works.get(gpu):
        work.stop()
