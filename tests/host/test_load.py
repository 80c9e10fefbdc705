"""The load's rates and its check of every result, with NumPy instead of CuPy, as there is no GPU here."""

from __future__ import annotations

import contextlib
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gameday.host.load import Gemm, measure_load


class FakeCupy(ModuleType):
    """NumPy with the few names that CuPy adds; `flip` corrupts one element of every product."""

    def __init__(self, flip: bool = False) -> None:
        super().__init__("fake_cupy")
        self.flip = flip
        stream = SimpleNamespace(null=SimpleNamespace(synchronize=lambda: None))
        self.cuda = SimpleNamespace(Device=lambda _: contextlib.nullcontext(), Stream=stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, "asarray" if name == "asnumpy" else name)

    def matmul(self, left: Any, right: Any, out: Any) -> None:
        np.matmul(left, right, out=out)
        if self.flip:
            out[3, 5] = np.nextafter(out[3, 5], out.dtype.type(np.inf))  # its last bit


def measure(cupy: ModuleType | None) -> Any:
    return measure_load(2, 0.02, cupy, size=64, copy_bytes=1 << 16)


def test_rates_are_measured_and_every_element_is_checked() -> None:
    result = measure(FakeCupy())
    assert result.gpu == 2
    assert result.gemm_tflops > 0
    assert result.memory_bandwidth_gbs > 0
    assert result.wrong_results == 0


def test_one_wrong_bit_is_counted() -> None:
    assert measure(FakeCupy(flip=True)).wrong_results >= 1


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_the_factors_have_random_mantissas_and_every_gpu_has_the_same(dtype: Any) -> None:
    one, other = (Gemm(FakeCupy(), 64, dtype) for _ in range(2))
    assert one.first_wrong == 0
    assert one.digest() == other.digest()
    assert len({float(value) for value in one._factors[0].flat}) > 1000


class OffByOne(np.ndarray[Any, Any]):
    """A factor whose product in FP16 is off by `off` in one element."""

    off = 0.0

    def astype(self, dtype: Any) -> Any:
        return np.asarray(self).astype(dtype).view(OffByOne)

    def __matmul__(self, other: Any) -> Any:
        product = np.asarray(self) @ np.asarray(other)
        if product.dtype == np.float16:
            product[1, 1] += self.off
        return product


def off_by_one(seed: int) -> Any:
    """Return the random state whose factors are OffByOne."""
    state = np.random.RandomState(seed)
    return SimpleNamespace(uniform=lambda *args: state.uniform(*args).view(OffByOne))


class WrongFirst(FakeCupy):
    """NumPy whose random factors are OffByOne."""

    random = SimpleNamespace(RandomState=off_by_one)


@pytest.mark.parametrize(("off", "first_wrong"), [(1.0, 1), (0.01, 0)])
def test_a_first_product_that_is_wrong_is_found_by_its_size_or_by_its_digest(
    monkeypatch: pytest.MonkeyPatch, off: float, first_wrong: int
) -> None:
    healthy = Gemm(FakeCupy(), 64, np.float16)
    monkeypatch.setattr(OffByOne, "off", off)
    gemm = Gemm(WrongFirst(), 64, np.float16)
    assert gemm.first_wrong == first_wrong
    assert gemm.digest() != healthy.digest()


def test_without_cupy_nothing_is_measured_and_the_detail_has_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    result = measure(None)
    assert (result.gemm_tflops, result.memory_bandwidth_gbs) == (None, None)
    assert "gpu-gameday[gpu]" in result.detail


def test_the_error_of_a_gpu_that_fails_under_load_is_in_the_detail() -> None:
    cupy = FakeCupy()
    cupy.cuda.Device = lambda _: (_ for _ in ()).throw(RuntimeError("cudaErrorDevicesUnavailable"))
    assert "cudaErrorDevicesUnavailable" in measure(cupy).detail
