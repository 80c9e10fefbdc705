"""The load's rates and its check of every result, with NumPy instead of CuPy, as there is no GPU here."""

from __future__ import annotations

import contextlib
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gameday.host.load import measure_load


class FakeCupy(ModuleType):
    """NumPy with the few names that CuPy adds; `flip` corrupts one element of every product."""

    def __init__(self, flip: bool = False) -> None:
        super().__init__("fake_cupy")
        self.flip = flip
        stream = SimpleNamespace(null=SimpleNamespace(synchronize=lambda: None))
        self.cuda = SimpleNamespace(Device=lambda _: contextlib.nullcontext(), Stream=stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def matmul(self, left: Any, right: Any, out: Any) -> None:
        np.matmul(left, right, out=out)
        if self.flip:
            out[3, 5] += 1


def measure(cupy: ModuleType | None) -> Any:
    return measure_load(2, 0.02, cupy, size=64, copy_bytes=1 << 16)


def test_rates_are_measured_and_every_element_is_checked() -> None:
    result = measure(FakeCupy())
    assert result.gpu == 2
    assert result.gemm_tflops > 0
    assert result.memory_bandwidth_gbs > 0
    assert result.wrong_results == 0


def test_a_wrong_element_is_counted() -> None:
    assert measure(FakeCupy(flip=True)).wrong_results >= 1


def test_without_cupy_nothing_is_measured_and_the_detail_has_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    result = measure(None)
    assert (result.gemm_tflops, result.memory_bandwidth_gbs) == (None, None)
    assert "gpu-gameday[gpu]" in result.detail


def test_the_error_of_a_gpu_that_fails_under_load_is_in_the_detail() -> None:
    cupy = FakeCupy()
    cupy.cuda.Device = lambda _: (_ for _ in ()).throw(RuntimeError("cudaErrorDevicesUnavailable"))
    assert "cudaErrorDevicesUnavailable" in measure(cupy).detail
