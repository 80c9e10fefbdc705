"""The load's rates and its check of every result, with NumPy instead of CuPy, as there is no GPU here."""

from __future__ import annotations

import contextlib
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

from gameday.host.load import Gemm, element_type, measure_load


class FakeCupy(ModuleType):
    """NumPy with the few names that CuPy adds; it adds `off` to one element of the first product.

    `flip` corrupts one element of every later product.
    """

    def __init__(self, flip: bool = False, off: float = 0.0) -> None:
        super().__init__("fake_cupy")
        self.flip, self.off, self.products = flip, off, 0
        stream = SimpleNamespace(null=SimpleNamespace(synchronize=lambda: None))
        self.cuda = SimpleNamespace(Device=lambda _: contextlib.nullcontext(), Stream=stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, "asarray" if name == "asnumpy" else name)

    def matmul(self, left: Any, right: Any, out: Any) -> None:
        np.matmul(left, right, out=out)
        self.products += 1
        if self.products == 1:
            out[1, 1] += out.dtype.type(self.off)
        elif self.flip:
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


@pytest.mark.parametrize("dtype", [np.float16, bfloat16, np.float32])
def test_the_factors_have_random_mantissas_and_every_gpu_has_the_same(dtype: Any) -> None:
    one, other = (Gemm(FakeCupy(), 64, dtype) for _ in range(2))
    assert one.first_wrong == 0
    assert one.digest() == other.digest()
    assert len({float(value) for value in one._factors[0].flat}) > 1000


def test_a_burn_in_bf16_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    with pytest.raises(ImportError, match=r"no BF16.*gpu-gameday\[gpu\]"):
        element_type(FakeCupy(), "bf16")


def test_one_wrong_bit_of_bf16_is_counted_and_its_digest_differs() -> None:
    gemm = Gemm(FakeCupy(), 64, bfloat16)
    healthy = gemm.digest()
    gemm.multiply()
    assert gemm.wrong() == 0
    gemm._reference.view(np.uint16)[3, 5] ^= 1
    assert gemm.wrong() == 1
    assert gemm.digest() != healthy


@pytest.mark.parametrize(
    ("dtype", "off", "first_wrong"),
    [(np.float16, 1.0, 1), (np.float16, 0.01, 0), (bfloat16, 1.0, 1), (bfloat16, 1 / 32, 0)],
)
def test_a_first_product_that_is_wrong_is_found_by_its_size_or_by_its_digest(
    dtype: Any, off: float, first_wrong: int
) -> None:
    healthy = Gemm(FakeCupy(), 64, dtype)
    gemm = Gemm(FakeCupy(off=off), 64, dtype)
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
