"""An all-reduce with NCCL over GPUs of one node; it is timed, and every sum is compared.

One process has all GPUs, so NCCL reaches them through the driver and needs no shared memory of the container.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any

_WORDS = 1 << 28
"""Words of 4 bytes of a message: 1 GiB. Larger messages hardly raise a node's bus bandwidth."""
_ROUNDS = 20
"""Timed all-reduces; nccl-tests' default."""
_FACTOR = 2_654_435_761
"""Odd, with ones spread over its 32 bits, so that neighbouring words share few of them (Knuth's multiplicative
hash)."""


def all_reduce(
    cupy: ModuleType, nccl: ModuleType, gpus: Sequence[int], words: int = _WORDS, rounds: int = _ROUNDS
) -> tuple[float, int]:
    """Sum a message over the GPUs, again and again.

    Args:
        cupy: The CuPy module.
        nccl: The module cupy.cuda.nccl.
        gpus: CUDA's indices of the GPUs, in the order of the PCI bus.
        words: Length of the message, in words of 4 bytes.
        rounds: Number of timed all-reduces.

    Returns:
        The bus bandwidth in GB/s as nccl-tests defines it, 0 for one GPU; and the number of wrong sums on all GPUs, in
            the first and the last round.
    """
    communicators = nccl.NcclCommunicator.initAll(list(gpus))
    ranks = [
        Rank(cupy, communicator, gpu, number, len(gpus), words)
        for number, (gpu, communicator) in enumerate(zip(gpus, communicators, strict=True))
    ]
    run_rounds(nccl, ranks, 1)  # connects the GPUs
    wrong = sum(rank.wrong() for rank in ranks)
    seconds = run_rounds(nccl, ranks, rounds)
    wrong += sum(rank.wrong() for rank in ranks)
    share = 2 * (len(gpus) - 1) / len(gpus)
    return share * 4 * words * rounds / seconds / 1e9, wrong


class Rank:
    """The part of one GPU: its message, its sum, and the expected sum."""

    def __init__(self, cupy: ModuleType, communicator: Any, gpu: int, number: int, of: int, words: int) -> None:
        """Take the GPU's memory. `number` is the rank, `of` the number of ranks, `words` the message's length."""
        self._cupy, self._communicator, self._words, self._of = cupy, communicator, words, of
        self._device = cupy.cuda.Device(gpu)
        with self._device:
            self._stream = cupy.cuda.Stream(non_blocking=True)
            self._message = self._multiples(2 * number + 1)
            self._sum = cupy.zeros(words, dtype=cupy.uint32)
            cupy.cuda.Stream.null.synchronize()

    def _multiples(self, times: int) -> Any:
        """Return multiples of the factor, modulo 2**32 as NCCL adds them."""
        cupy = self._cupy
        return cupy.arange(self._words, dtype=cupy.uint32) * cupy.uint32(times * _FACTOR % 2**32)

    def reduce(self, nccl: ModuleType) -> None:
        """Start summing this rank's message with those of all others."""
        with self._device:
            self._communicator.allReduce(
                self._message.data.ptr,
                self._sum.data.ptr,
                self._words,
                nccl.NCCL_UINT32,
                nccl.NCCL_SUM,
                self._stream.ptr,
            )

    def wait(self) -> None:
        """Wait until the sum is there."""
        with self._device:
            self._stream.synchronize()

    def wrong(self) -> int:
        """Return the number of wrong sums, and drop all of them."""
        with self._device:
            # 1 + 3 + 5 + ... is the square of the number of ranks.
            wrong = int(self._cupy.count_nonzero(self._sum != self._multiples(self._of**2)))
            self._sum[:] = 0
            self._cupy.cuda.Stream.null.synchronize()
            return wrong


def run_rounds(nccl: ModuleType, ranks: Sequence[Rank], rounds: int) -> float:
    """Return the seconds that this many all-reduces took; `ranks` are all those of this process."""
    start = time.perf_counter()
    for _ in range(rounds):
        nccl.groupStart()
        for rank in ranks:
            rank.reduce(nccl)
        nccl.groupEnd()
    for rank in ranks:
        rank.wait()
    return time.perf_counter() - start
