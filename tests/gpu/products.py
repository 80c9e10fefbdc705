"""Work on a GPU in a process of its own: its CUDA context ends with it, and the next test finds the GPU at rest."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import get_context
from typing import Literal

Values = Literal["random", "-1 and 1"]
"""The factors to multiply: random between -1 and 1, or their signs."""
Shape = tuple[int, int, int]
"""Rows, columns and inner dimension of a product."""
OURS: Shape = (8192, 8192, 8192)
"""The product that QA measures (gameday.host.load)."""


@contextmanager
def alone() -> Iterator[ProcessPoolExecutor]:
    """Yield a process for work with CUDA; it has ended when the block has."""
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # orders GPUs as NVML does; the process inherits it
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


def library_rate(gpu: int, seconds: float, shape: Shape = OURS, values: Values = "random") -> float:
    """Return TFLOP/s of FP16 products on the data that the load has, without any check between them."""
    cupy = import_module("cupy")
    rows, columns, inner = shape
    with cupy.cuda.Device(gpu):
        generator = cupy.random.RandomState(seed=1)
        left, right = (generator.uniform(-1, 1, size) for size in ((rows, inner), (inner, columns)))
        if values == "-1 and 1":
            left, right = cupy.sign(left), cupy.sign(right)
        left, right = left.astype(cupy.float16), right.astype(cupy.float16)
        out = left @ right
        cupy.cuda.Stream.null.synchronize()
        start, products = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            for _ in range(10):
                cupy.matmul(left, right, out=out)
            cupy.cuda.Stream.null.synchronize()
            products += 10
        return float(2 * rows * columns * inner * products / (time.perf_counter() - start) / 1e12)


def library_rates(gpu: int, seconds: float, shapes: tuple[Shape, ...]) -> dict[Shape, float]:
    """Return the rate of each shape, each for some seconds; CuPy's memory goes back in between."""
    rates = {}
    for shape in shapes:
        rates[shape] = library_rate(gpu, seconds, shape)
        import_module("cupy").get_default_memory_pool().free_all_blocks()
    return rates
