"""The proof that a repaired node is good."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from gameday.documents.fields import Bound, DocumentModel, Duration, conflict

LEAST_BURN_IN = timedelta(seconds=2)
"""The shortest burn-in of a real GPU. Our own figure: in less, clocks and NVML's averages have not settled."""


def _long_enough(value: timedelta) -> timedelta:
    if value < LEAST_BURN_IN:
        raise PydanticCustomError(
            "burn_in",
            "a burn-in of less than 2s proves nothing about a GPU: write 2s or more, or null for a QA that only reads. "
            "Virtual nodes take less: their key is virtual_burn_in",
        )
    return value


DIAG_LIMITS = {1: timedelta(minutes=2), 2: timedelta(minutes=8), 3: timedelta(hours=1)}
"""The longest time of `dcgmi diag` by its level: four times what NVIDIA states (docs/sources.md, DCGM diag)."""
_LOADING_LEVEL = 2
"""The lowest level of `dcgmi diag` that puts work on the GPUs."""

BurnIn = Annotated[Duration, AfterValidator(_long_enough)]


class QaFloors(DocumentModel):
    """The least that a node must show before it takes work again.

    If a floor is null, a figure of the node, its GPUs or their model counts, or the check is switched off, as its field
    says.
    """

    gpus: int | None = Field(default=None, ge=1, le=64)
    """GPUs that NVML must count; null: nvidia.com/gpu.count, or as many as the node offered before the fault."""
    gemm_tflops: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Rate of a dense FP16 GEMM, TFLOP/s for each GPU; data sheets rate BF16 alike (docs/sources.md, Precisions). null:
    the model's floor (docs/sources.md, GPU models), else what the node's other GPUs reach."""
    memory_bandwidth_gbs: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Rate of a device-to-device copy, GB/s for each GPU; null: as `gemm_tflops`."""
    link_bandwidth_gbs: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Rate of a copy from the nearest host memory, GB/s for each GPU; null: as `gemm_tflops`."""
    all_reduce_gbs: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Bus bandwidth of an all-reduce over all GPUs of the node, GB/s; null: the model's floor. If that has none, or if
    `nvlinks` is 0, only the sums are checked."""
    pcie_generation: int | None = Field(default=None, ge=1, le=7)
    """PCIe generation of each GPU's link; null: the GPU's own maximum."""
    pcie_width: int | None = Field(default=None, ge=1, le=32)
    """Lanes of each GPU's link; null: the GPU's own maximum."""
    nvlinks: int | None = Field(default=None, ge=0, le=72)
    """NVLinks that must be active on each GPU; null: the model's number, not checked if that is not listed; 0: the GPUs
    have none."""
    power_limit_w: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Power limit that each GPU must have, watts; null: the board's default."""
    persistence: bool | None = True
    """Persistence mode that each GPU must be in; null: not checked."""
    ecc: bool | None = True
    """ECC mode that each GPU must be in, now and after its next reset; null: not checked."""
    memory_free_mib: int | None = Field(default=None, gt=0)
    """Memory that must be free on each GPU at rest, MiB; null: not checked."""
    temperature_max_c: float | None = Field(default=93, gt=0, allow_inf_nan=False)
    """Highest temperature of each GPU at any time, degrees Celsius (93: where Azure's agent warns, docs/sources.md,
    Pass criteria). If the GPU's own highest operating temperature is lower, that one counts. The burn-in ends if a GPU
    is hotter than this; null: not checked."""

    def of_load(self) -> dict[str, float]:
        """Return the floors given here that only a load can measure, by key."""
        keys = ("gemm_tflops", "memory_bandwidth_gbs", "link_bandwidth_gbs", "all_reduce_gbs")
        return {key: value for key in keys if (value := getattr(self, key)) is not None}


class NodeProof(DocumentModel):
    """The proof that a node is good: what it must show, and how long its GPUs work for that."""

    floors: QaFloors = QaFloors()
    """The least that the node must show."""
    burn_in: BurnIn | None = timedelta(minutes=5)
    """Time for which all GPUs compute at once, so that heat shows; null: QA only reads, and leaves running work alone.
    The default is more than twice DCGM's targeted power test (docs/sources.md, Burn-in)."""
    virtual_burn_in: Bound = timedelta(seconds=1)
    """The burn-in of a rehearsal's virtual nodes, which have model GPUs; a real node never uses it."""

    dcgm_diag: Literal[1, 2, 3] | None = None
    """Level of `dcgmi diag` that the node must pass, after the burn-in: 1 only reads; 2 and 3 put work on the GPUs, and
    need a burn_in (docs/sources.md, DCGM diag). If it cannot run, the node does not pass. null: it is not run. That is
    the default, because a node without DCGM could not pass, and level 3 takes a quarter of an hour."""

    @property
    def longest_work(self) -> timedelta:
        """The longest time of burn-in and diagnosis on any node; 0 if QA only reads."""
        burn_in = max(self.burn_in, self.virtual_burn_in) if self.burn_in else timedelta()
        return burn_in + (DIAG_LIMITS[self.dcgm_diag] if self.dcgm_diag else timedelta())

    @model_validator(mode="after")
    def _floors_are_measured(self) -> NodeProof:
        if self.burn_in is None and (unmeasured := self.floors.of_load()):
            raise conflict(
                ("burn_in",),
                f"nothing would measure {', '.join(f'floors.{key}' for key in unmeasured)} without a load: write a "
                "burn_in, or leave the floor out",
            )
        if self.burn_in is None and (self.dcgm_diag or 0) >= _LOADING_LEVEL:
            raise conflict(
                ("dcgm_diag",),
                f"level {self.dcgm_diag} puts work on the GPUs, and burn_in: null leaves running work alone: write "
                "level 1, or a burn_in",
            )
        return self


class Qa(NodeProof):
    """The proof that the node is good, before it takes work again."""

    within: Duration = timedelta(minutes=10)
    """Longest time from the start of the step to the result of the last check, without burn-in and `dcgmi diag`."""

    @property
    def longest(self) -> timedelta:
        """The longest time of the step, burn-in and diagnosis included."""
        return self.within + self.longest_work
