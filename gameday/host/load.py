"""Measure a burst of GEMM and of device-to-device copy on one GPU, and check every result.

CuPy is the optional extra `gpu`: cuBLAS from Python, with no compiler on the node. The measured GEMM runs in FP16. Data
sheets give FP16 and BF16 the same dense rate (docs/sources.md, Precisions), so the figure can be compared with BF16
floors. A burn runs in BF16 if its order says so: CuPy 14 takes the type from ml_dtypes, which the extra installs. That
has not run on a real GPU yet.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from gameday.host.base import LoadResult, Precision

_SIZE = 8192
"""Rows and columns of a matrix. A product takes 1.1 TFLOP, enough to fill a B200; a matrix takes 128 MiB."""
_TOLERANCE = 1 / 128
"""Largest error of the first product, as a share of the square root of the matrix's size. An element's standard
deviation is a third of that root, and the largest of 8192² elements is 1.9 times the root: FP16 rounds it by at most
a thousandth of the root (1.9 / 2¹¹), BF16 by 1/135 (1.9 / 2⁸)."""
_COPY_BYTES = 1 << 30
"""Far more than any L2 cache holds, so that the copy measures the memory's bandwidth."""


def measure_load(
    gpu: int, seconds: float, cupy: ModuleType | None = None, size: int = _SIZE, copy_bytes: int = _COPY_BYTES
) -> LoadResult:
    """Run GEMM for half of the time and copy for the other half, and return the rates.

    An error of the GPU or of CuPy is not raised: then the rates are None, and `detail` has the error.

    Args:
        gpu: NVML index of the GPU.
        seconds: Duration of both parts together.
        cupy: The CuPy module; None imports it. Tests pass another one.
        size: Rows and columns of the matrices.
        copy_bytes: Bytes of one copy.
    """
    if cupy is None:
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # orders GPUs as NVML does; CUDA's default order is by speed
        try:
            cupy = import_module("cupy")  # the optional extra
        except ImportError as error:
            return _not_run(gpu, f"CuPy cannot be imported ({error}); install gpu-gameday[gpu] in the agent's image")
    try:
        with cupy.cuda.Device(gpu):
            tflops, wrong = _gemm(cupy, seconds / 2, size)
            bandwidth = _copy(cupy, seconds / 2, copy_bytes)
            return LoadResult(gpu=gpu, gemm_tflops=tflops, memory_bandwidth_gbs=bandwidth, wrong_results=wrong)
    except Exception as error:  # CuPy has its own error types for CUDA, cuBLAS and memory
        return _not_run(gpu, f"{type(error).__name__}: {error}"[:500])


def _not_run(gpu: int, why: str) -> LoadResult:
    return LoadResult(gpu=gpu, gemm_tflops=None, memory_bandwidth_gbs=None, detail=why)


class Gemm:
    """A matrix product that is computed repeatedly and compared with its own first result, bit for bit.

    The factors have random mantissas, as in real work: factors of -1 and 1 toggle few bits, so the GPU draws less
    power. cuBLAS gives the same bits in every run, and on every GPU of the same architecture and number of SMs
    (docs/sources.md, Burn-in), so one wrong bit is a finding. The first result is compared with an FP32 product here,
    and by its digest with other GPUs.
    """

    def __init__(self, cupy: ModuleType, size: int, dtype: Any) -> None:
        generator = cupy.random.RandomState(seed=1)  # the same factors on every GPU
        left, right = (generator.uniform(-1, 1, (size, size)).astype(dtype) for _ in range(2))
        self.flop = 2 * size**3
        self._cupy = cupy
        self._factors = left, right
        self._product = cupy.empty((size, size), dtype=dtype)
        cupy.matmul(left, right, out=self._product)  # warms up cuBLAS
        self._reference = self._product.copy()
        error = abs(self._reference.astype(cupy.float32) - left.astype(cupy.float32) @ right.astype(cupy.float32))
        self.first_wrong = int(cupy.count_nonzero(~(error <= _TOLERANCE * size**0.5)))
        """Elements of the first product that differ more from the FP32 product than rounding explains."""

    def multiply(self) -> float:
        """Compute the product once, and return the seconds it took."""
        return timed(self._cupy, lambda: self._cupy.matmul(*self._factors, out=self._product))

    def wrong(self) -> int:
        """Return the number of elements of the last product that differ from the first one."""
        return int(self._cupy.count_nonzero(self._product != self._reference))

    def digest(self) -> str:
        """Return a checksum of the first product's bits, to compare GPUs of one model."""
        bits = self._cupy.asnumpy(self._reference).view("u1")  # NumPy exports no buffer of BF16
        return f"{zlib.crc32(bits):08x}"


def element_type(cupy: ModuleType, precision: Precision) -> Any:
    """Return the type of a matrix's elements. Raises ImportError if BF16 is asked for and its package is missing."""
    if precision != "bf16":
        return cupy.float16 if precision == "half" else cupy.float32
    try:
        return import_module("ml_dtypes").bfloat16
    except ImportError as error:
        raise ImportError(f"no BF16 ({error}); install gpu-gameday[gpu] in the agent's image") from None


def _gemm(cupy: ModuleType, seconds: float, size: int) -> tuple[float, int]:
    """Return TFLOP/s, and the number of wrong elements in all products."""
    gemm = Gemm(cupy, size, element_type(cupy, "half"))
    busy, products, wrong = 0.0, 0, gemm.first_wrong
    while busy < seconds:
        busy += gemm.multiply()
        products += 1
        wrong += gemm.wrong()
    return gemm.flop * products / busy / 1e12, wrong


def _copy(cupy: ModuleType, seconds: float, size: int) -> float:
    """Copy for some seconds, and return GB/s.

    Every byte counts twice, read and written, as in published figures (docs/sources.md, H100 figures).
    """
    source = cupy.zeros(size, dtype=cupy.uint8)
    target = cupy.empty_like(source)
    busy, copies = 0.0, 0
    while busy < seconds:
        busy += timed(cupy, lambda: cupy.copyto(target, source))
        copies += 1
    return 2 * size * copies / busy / 1e9


def timed(cupy: ModuleType, work: Callable[[], Any]) -> float:
    """Run `work`, and return the seconds it took on the GPU."""
    cupy.cuda.Stream.null.synchronize()
    start = time.perf_counter()
    work()
    cupy.cuda.Stream.null.synchronize()
    return time.perf_counter() - start
