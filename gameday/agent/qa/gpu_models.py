"""The floors of each GPU model, by the name that NVML gives; every figure is in docs/sources.md, GPU models.

A floor is a share of a published figure:

* memory: 0.65 of the data sheet's bandwidth. Healthy GPUs reach 0.70 to 0.87 of it in a copy; one that has lost a third
  of its bandwidth stays below 0.58.
* GEMM: 0.8 of the best rate measured on that model with the best shape. GPUs of one node differ by 5 % and more, and
  our GEMM has only one shape. The published rates are for BF16 and ours runs in FP16; data sheets rate both alike
  (docs/sources.md, Precisions).
* all-reduce: 0.7 of what the GPU's NVLinks carry in one direction. Eight healthy GPUs reach 0.74 (A100) to 0.98 (H100)
  of it, GPUs that only found PCIe a tenth.
* link: the floor of Azure's health checks, one GPU after the other.

NVLinks are those of the model on its board, each at its published rate. A temperature is listed only if a GPU of the
model was seen to have it, and NVML's own limit takes precedence. If a row lacks a figure, the node's other GPUs are the
measure, or it is not checked.
"""

from __future__ import annotations

from dataclasses import dataclass

MEMORY_SHARE = 0.65
GEMM_SHARE = 0.8
ALL_REDUCE_SHARE = 0.7
NVLINK_SHARE = 0.99
"""Least share of a link's published rate: NVML rounds it to whole MB/s, and the next lower rate is 6 % below."""


@dataclass(frozen=True)
class GpuModel:
    """The published figures of a GPU model; None if no source has one."""

    memory_gbs: float | None = None
    """The data sheet's memory bandwidth."""
    best_gemm_tflops: float | None = None
    """The best dense BF16 rate that was measured."""
    link_floor_gbs: float | None = None
    """The floor of a copy from pinned host memory."""
    nvlinks: int | None = None
    """The NVLinks of each GPU."""
    nvlink_mbps: int | None = None
    """The rate of each of them, MB/s in one direction, as NVML gives it."""
    max_operating_c: float | None = None
    """The temperature above which the driver lowers the clocks, degrees Celsius."""

    @property
    def memory_floor_gbs(self) -> float | None:
        """The least rate of a copy within the GPU."""
        return None if self.memory_gbs is None else MEMORY_SHARE * self.memory_gbs

    @property
    def gemm_floor_tflops(self) -> float | None:
        """The least rate of a GEMM."""
        return None if self.best_gemm_tflops is None else GEMM_SHARE * self.best_gemm_tflops

    @property
    def all_reduce_floor_gbs(self) -> float | None:
        """The least bus bandwidth of an all-reduce over GPUs of this model on one board."""
        return self.nvlinks * self.nvlink_mbps / 1000 * ALL_REDUCE_SHARE if self.nvlinks and self.nvlink_mbps else None

    @property
    def nvlink_floor_mbps(self) -> float | None:
        """The least rate of each NVLink."""
        return None if self.nvlink_mbps is None else NVLINK_SHARE * self.nvlink_mbps


_A100_NVLINKS, _H100_NVLINKS, _B200_NVLINKS = (12, 25_781), (18, 26_562), (18, 53_125)

GPU_MODELS = {
    "NVIDIA A100-SXM4-40GB": GpuModel(1555, 271.2, 21, *_A100_NVLINKS),
    "NVIDIA A100-SXM4-80GB": GpuModel(2039, 271.2, 21, *_A100_NVLINKS),
    "NVIDIA A100-PCIE-40GB": GpuModel(1555, 252.9),
    "NVIDIA A100 80GB PCIe": GpuModel(1935, 252.9),
    "NVIDIA H100 80GB HBM3": GpuModel(3350, 794.5, 48, *_H100_NVLINKS, max_operating_c=87),
    "NVIDIA H100 PCIe": GpuModel(2000),
    "NVIDIA H100 NVL": GpuModel(3900),
    "NVIDIA H200": GpuModel(4800, 794.5, 48, *_H100_NVLINKS),
    "NVIDIA H200 NVL": GpuModel(4800),
    "NVIDIA B200": GpuModel(8000, 1745, None, *_B200_NVLINKS),
    "NVIDIA L40S": GpuModel(864),
}
