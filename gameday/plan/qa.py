"""The proof that a repaired node is good."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from gameday.documents.fields import DocumentModel, Duration


class QaFloors(DocumentModel):
    """The least that a node must show before it takes work again.

    A floor of null is left out. For `gpus`, `power_limit_w`, `pcie_generation` and `pcie_width` the node's and its
    GPUs' own figures then count; every other check is switched off.
    """

    gpus: int | None = Field(default=None, ge=1, le=64)
    """GPUs that NVML must count; null: nvidia.com/gpu.count, or as many as the node offered before the fault."""
    gemm_tflops: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Rate of a dense BF16 GEMM, TFLOP/s for each GPU."""
    memory_bandwidth_gbs: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Rate of a device-to-device copy, GB/s for each GPU."""
    pcie_generation: int | None = Field(default=None, ge=1, le=7)
    """PCIe generation of each GPU's link; null: the GPU's own maximum."""
    pcie_width: int | None = Field(default=None, ge=1, le=32)
    """Lanes of each GPU's link; null: the GPU's own maximum."""
    nvlinks: int | None = Field(default=None, ge=0, le=72)
    """NVLinks that must be active on each GPU."""
    power_limit_w: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Power limit that each GPU must have, watts; null: the board's default."""
    persistence: bool | None = True
    """Persistence mode that each GPU must be in."""
    ecc: bool | None = True
    """ECC mode that each GPU must be in, now and after its next reset."""
    memory_free_mib: int | None = Field(default=None, gt=0)
    """Memory that must be free on each GPU at rest, MiB."""
    temperature_max_c: float | None = Field(default=93, gt=0, allow_inf_nan=False)
    """Highest temperature of each GPU, degrees Celsius (93: where Azure's agent warns, docs/sources.md, Pass
    criteria)."""

    @property
    def needs_load(self) -> bool:
        """Return whether QA has to load the GPUs to judge the floors; otherwise it leaves running work alone."""
        return self.gemm_tflops is not None or self.memory_bandwidth_gbs is not None


class Qa(DocumentModel):
    """The proof that the node is good, before it takes work again."""

    floors: QaFloors = QaFloors()
    within: Duration = timedelta(minutes=10)
    """Longest time from the start of the step to the result of the last check."""
