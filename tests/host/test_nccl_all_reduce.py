"""The all-reduce's figures and its check of every sum, with NumPy instead of CuPy and NCCL: there is no GPU here."""

from __future__ import annotations

import contextlib
import ctypes
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gameday.host import nccl_all_reduce
from gameday.host.nccl_all_reduce import all_reduce

WORDS = 4096


class DeviceArray(np.ndarray[Any, Any]):
    """An array that has its address where CuPy's arrays have it."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)


class Stream:
    null = SimpleNamespace(synchronize=lambda: None)
    ptr = 7

    def __init__(self, non_blocking: bool) -> None:
        assert non_blocking

    def synchronize(self) -> None:
        pass


class FakeCupy(ModuleType):
    """NumPy with the few names that CuPy adds; it remembers the GPUs that were chosen."""

    def __init__(self) -> None:
        super().__init__("fake_cupy")
        self.chosen: list[int] = []
        self.cuda = SimpleNamespace(Device=self._device, Stream=Stream)

    def _device(self, gpu: int) -> Any:
        self.chosen.append(gpu)
        return contextlib.nullcontext()

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def zeros(self, *shape: int, dtype: Any) -> Any:
        return np.zeros(*shape, dtype=dtype).view(DeviceArray)

    def arange(self, *ends: int, dtype: Any) -> Any:
        return np.arange(*ends, dtype=dtype).view(DeviceArray)


class FakeNccl(ModuleType):
    """NCCL whose group sums when it ends; `flip` is (round, GPU, word) of a sum that gets a wrong bit."""

    NCCL_UINT32, NCCL_SUM = 3, 0

    def __init__(self, flip: tuple[int, int, int] | None = None) -> None:
        super().__init__("fake_nccl")
        self.rounds, self.flip = 0, flip
        self.calls: list[tuple[int, ...]] = []
        self.NcclCommunicator = SimpleNamespace(initAll=lambda gpus: [self] * len(gpus))

    def groupStart(self) -> None:
        self.calls = []

    def allReduce(self, *call: int) -> None:
        self.calls.append(call)

    def groupEnd(self) -> None:
        total = np.sum([memory(sent, words) for sent, _, words, *_ in self.calls], axis=0, dtype=np.uint32)
        for gpu, (_, received, words, kind, operation, stream) in enumerate(self.calls):
            assert (kind, operation, stream) == (self.NCCL_UINT32, self.NCCL_SUM, Stream.ptr)
            memory(received, words)[:] = total
            if self.flip and self.flip[:2] == (self.rounds, gpu):
                memory(received, words)[self.flip[2]] ^= 1
        self.rounds += 1


def memory(address: int, words: int) -> Any:
    return np.ctypeslib.as_array((ctypes.c_uint32 * words).from_address(address))


@pytest.mark.parametrize("gpus", [(0,), (0, 1), (2, 5, 7), tuple(range(8))])
def test_the_sums_of_any_number_of_gpus_are_known(gpus: tuple[int, ...]) -> None:
    cupy, nccl = FakeCupy(), FakeNccl()
    rate, wrong = all_reduce(cupy, nccl, gpus, WORDS, rounds=3)
    assert wrong == 0
    assert nccl.rounds == 4, "one to connect the GPUs, which does not count"
    assert set(cupy.chosen) == set(gpus)
    assert (rate > 0) == (len(gpus) > 1)


@pytest.mark.parametrize("in_round", [0, 3])
def test_one_wrong_bit_on_one_gpu_is_counted(in_round: int) -> None:
    assert all_reduce(FakeCupy(), FakeNccl((in_round, 1, WORDS - 1)), (0, 1), WORDS, rounds=3)[1] == 1


def test_an_all_reduce_that_does_nothing_is_wrong_everywhere() -> None:
    nccl = FakeNccl()
    nccl.groupEnd = lambda: None  # type: ignore[method-assign]
    assert all_reduce(FakeCupy(), nccl, (0, 1), WORDS, rounds=1)[1] == 2 * 2 * (WORDS - 1), "0 times anything is 0"


def test_the_bus_bandwidth_is_that_of_nccl_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((0.0, 5.0, 10.0, 10.004))
    monkeypatch.setattr(nccl_all_reduce.time, "perf_counter", lambda: next(clock))
    rate, _ = all_reduce(FakeCupy(), FakeNccl(), tuple(range(8)), 1000, rounds=5)
    assert rate == pytest.approx(2 * 7 / 8 * 5 * 4000 / 0.004 / 1e9)
