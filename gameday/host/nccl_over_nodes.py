"""A rank of an all-reduce over several nodes with NCCL, on one GPU: its network, its rounds, its figures.

NCCL has no time limit for a collective (docs/sources.md, NCCL over nodes): a rank may wait for ever if its peer or link
is gone. So the process that calls this is killed at its limit, and reports every figure as soon as it has it.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from gameday.host.base import AllReduceOverNodes
from gameday.host.host_sockets import enter_host_network
from gameday.host.nccl_all_reduce import Rank, run_rounds
from gameday.text import printable

_SMALLEST_BYTES, _LARGEST_BYTES = 64 << 10, 1 << 30
_ROUND_S = 0.02
"""The shortest round of the baseline: the time of 1 GiB at 400 Gbit/s. Latency then hardly counts."""
_MEASURE_S, _ROUNDS = 3.0, 20
"""Length of a measurement in seconds, and its most rounds: nccl-tests' default."""
_LATENCY_ROUNDS = 10
_WORD_BYTES = 4
_ASK_EVERY_S = 0.25
_WARNING = re.compile(r"NCCL WARN (.*)")
_MAX_WARNING_CHARACTERS = 200
_MAX_LOG_BYTES = 64 << 10
_NETWORK_STATUSES = (2, 3, 5, 6)
"""NCCL's results that concern the network: ncclSystemError, ncclInternalError, ncclInvalidUsage, ncclRemoteError.
NCCL 2.32 returns the third if no interface that it may use is up. The baseline finds wrong names."""
_OUR_VARIABLES = {
    # One GPU per node leaves only the network. The first two settings ensure that for two ranks on one node, the third
    # for racks with an NVLink domain over several nodes.
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_MNNVL_ENABLE": "0",
    "NCCL_SOCKET_RETRY_CNT": "20",  # refused connections end after 21 s instead of 60: 0.1 s, 0.2 s and so on
    "NCCL_IB_TIMEOUT": "17",  # 4.096 µs x 2^17, eight times: a lost link ends a round after 4 s instead of 34
    "NCCL_DEBUG": "WARN",
}


def variables(order: AllReduceOverNodes) -> dict[str, str]:
    """Return NCCL's variables that keep the data on the order's interface or adapter."""
    network = {"NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1"}
    if order.hca:
        network = {"NCCL_NET": "IB", "NCCL_IB_HCA": f"={order.hca}"}  # never sockets if no adapter fits
    return {**_OUR_VARIABLES, "NCCL_SOCKET_IFNAME": f"={order.interface}", **network, **order.environment}


def prepare(order: AllReduceOverNodes, proc: Path = Path("/proc")) -> int:
    """Enter the host's network and set NCCL's variables, in a process that has not loaded NCCL yet.

    NCCL's own messages go to a file in memory, because standard output belongs to the reports.

    Returns:
        The file's descriptor, for `last_warning`.

    Raises:
        OSError: The host's network cannot be entered.
    """
    enter_host_network(proc)
    for name in [name for name in os.environ if name.startswith("NCCL_")]:
        del os.environ[name]  # variables of the image would distort the measurement
    log = os.memfd_create("nccl")
    os.environ.update(variables(order), NCCL_DEBUG_FILE=f"/proc/self/fd/{log}")
    return log


def last_warning(log: int) -> str:
    """Return NCCL's last warning, shortened and on one line; empty if there is none."""
    written = os.pread(log, _MAX_LOG_BYTES, max(0, os.fstat(log).st_size - _MAX_LOG_BYTES))
    found = _WARNING.findall(written.decode("utf-8", "replace"))
    return printable(found[-1].strip(), _MAX_WARNING_CHARACTERS) if found else ""


def is_about_network(error: Exception) -> bool:
    """Return True if an NCCL error is about the network between the ranks, not about this node or its GPU."""
    return getattr(error, "status", None) in _NETWORK_STATUSES and type(error).__name__ == "NcclError"


def take_part(
    cupy: ModuleType,
    nccl: ModuleType,
    gpu: int,
    order: AllReduceOverNodes,
    report: Callable[..., None],
    fail: Callable[[Exception], None],
) -> dict[str, Any]:
    """Connect to the other ranks and sum with them; every rank measures the same rounds.

    Args:
        cupy: The CuPy module.
        nccl: The module cupy.cuda.nccl.
        gpu: Index of the GPU.
        order: The order.
        report: Takes the fields of a WorkReport as soon as they are known.
        fail: Takes an error that NCCL finds while a round hangs; called from another thread.

    Returns:
        The last figures as fields of a WorkReport. The bandwidth is nccl-tests' bus bandwidth.

    Raises:
        NcclError: CuPy's error, for everything that NCCL refuses.
    """
    unique_id = bytes.fromhex(order.unique_id) or bytes(one % 256 for one in nccl.get_unique_id())
    report(unique_id="" if order.rank else unique_id.hex())
    communicator = nccl.NcclCommunicator(order.ranks, tuple(unique_id), order.rank)
    finished = threading.Event()
    threading.Thread(target=_watch, args=(communicator, finished, fail), daemon=True).start()
    figures = _Figures(cupy, nccl, communicator, gpu, order).measure(report)
    finished.set()
    return figures


def _watch(communicator: Any, finished: threading.Event, fail: Callable[[Exception], None]) -> None:
    """Ask NCCL for errors of its network threads, which a waiting stream does not show."""
    while not finished.wait(_ASK_EVERY_S):
        try:
            communicator.check_async_error()
        except Exception as error:  # CuPy's NcclError, or a KeyError for a status that it does not know
            if not finished.is_set():
                fail(error)
            return


class _Figures:
    """The rounds of one rank. All ranks decide alike, because each decision uses the slowest rank's time."""

    def __init__(
        self, cupy: ModuleType, nccl: ModuleType, communicator: Any, gpu: int, order: AllReduceOverNodes
    ) -> None:
        self._cupy, self._nccl, self._communicator, self._gpu, self._order = cupy, nccl, communicator, gpu, order
        with cupy.cuda.Device(gpu):
            self._stream = cupy.cuda.Stream(non_blocking=True)

    def measure(self, report: Callable[..., None]) -> dict[str, Any]:
        """Double the bytes until a round takes long enough, then measure rounds of that size."""
        one = self._rank(self._order.ranks)
        self._timed(one, 1)  # connects the ranks
        wrong = one.wrong()
        latency_ms = 1000 * self._timed(one, _LATENCY_ROUNDS) / _LATENCY_ROUNDS
        report(latency_ms=latency_ms)
        most, size = self._order.bytes or _LARGEST_BYTES, _SMALLEST_BYTES
        enough_s = _MEASURE_S if self._order.bytes else _ROUND_S
        while True:
            size = min(size, most)
            one = self._rank(max(1, size // _WORD_BYTES))
            seconds = self._timed(one, 1)
            wrong += one.wrong()
            figures = {"latency_ms": latency_ms, "round_bytes": size, "wrong_sums": wrong}
            report(bus_gbs=self._bus_gbs(size, seconds), **figures)
            if size == most or seconds >= enough_s:
                break
            size *= 2
        rounds = max(1, min(_ROUNDS, int(_MEASURE_S / seconds)))
        seconds = self._timed(one, rounds) / rounds
        figures["wrong_sums"] = wrong + one.wrong()
        return figures | {"bus_gbs": self._bus_gbs(size, seconds), "finished": True}

    def _rank(self, words: int) -> Rank:
        return Rank(self._cupy, self._communicator, self._gpu, self._order.rank, self._order.ranks, words)

    def _bus_gbs(self, size: int, seconds: float) -> float:
        ranks = self._order.ranks
        return 2 * (ranks - 1) / ranks * size / seconds / 1e9

    def _timed(self, one: Rank, rounds: int) -> float:
        """Return the slowest rank's time in seconds, at least a microsecond."""
        seconds = run_rounds(self._nccl, [one], rounds)
        with self._cupy.cuda.Device(self._gpu):
            times = self._cupy.full(2, max(1, round(1e6 * seconds)), dtype=self._cupy.uint64)
            self._cupy.cuda.Stream.null.synchronize()
            own, slowest = times[:1], times[1:]
            self._communicator.allReduce(
                own.data.ptr, slowest.data.ptr, 1, self._nccl.NCCL_UINT64, self._nccl.NCCL_MAX, self._stream.ptr
            )
            self._stream.synchronize()
            return int(slowest[0]) / 1e6
