"""What the agent may ask of a host: write the kernel log, run a program, read and write files, NVML, load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field


class HostError(Exception):
    """A host refused or could not be reached; the message names the path or program and the cause."""


class ProgramResult(BaseModel):
    model_config = ConfigDict(frozen=True)

    argv: tuple[str, ...]
    exit_status: int
    stdout: str
    stderr: str


class GpuSample(BaseModel):
    """One GPU as NVML shows it at one moment. None: NVML does not support or could not read the field."""

    model_config = ConfigDict(frozen=True)

    index: int
    uuid: str
    name: str
    pci_bus_id: str = Field(description="as the kernel log writes it, lower case without function: 0000:4e:00")
    lost: bool = Field(default=False, description="NVML_ERROR_GPU_IS_LOST: nothing below can be read")
    temperature_c: float | None = None
    memory_temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    memory_clock_mhz: float | None = None
    utilization_pct: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    clocks_event_reasons: int | None = Field(default=None, description="NVML bit mask")
    ecc_mode: bool | None = None
    ecc_dbe_volatile: int | None = None
    ecc_sbe_volatile: int | None = None
    remapped_rows_correctable: int | None = None
    remapped_rows_uncorrectable: int | None = None
    row_remap_pending: bool | None = None
    row_remap_failure: bool | None = None
    nvlinks_active: int | None = None
    nvlinks_supported: int | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replay_counter: int | None = None
    persistence_mode: bool | None = None


class LoadResult(BaseModel):
    """A measured burst of work on one GPU; None where it could not be run, and `detail` says why."""

    model_config = ConfigDict(frozen=True)

    gpu: int
    gemm_tflops: float | None
    memory_bandwidth_gbs: float | None
    wrong_results: int = Field(default=0, description="GEMM elements that differ from the reference")
    detail: str = ""


class Host(Protocol):
    """Every method raises HostError, and nothing else, when the host says no."""

    def write_kernel_log(self, record: str) -> None:
        """One record, `<N>` priority prefix included; at most 976 bytes (research/gpu-health.md 2.2)."""

    def read_kernel_log(self) -> list[str]:
        """The ring buffer's messages, oldest first, each with its `[seconds.micros] ` stamp as dmesg prints it."""

    def run(self, argv: Sequence[str], timeout_s: float) -> ProgramResult:
        """Run a host program without a shell. A non-zero exit is a result, not an error."""

    def read_file(self, path: str) -> str: ...

    def write_file(self, path: str, content: str) -> None: ...

    def boot_id(self) -> str: ...

    def gpus(self) -> list[GpuSample]:
        """All GPUs the driver knows, lost ones included, ordered by index."""

    def measure_load(self, gpu: int, seconds: float) -> LoadResult:
        """BF16 GEMM and device-to-device copy for about `seconds` in all."""
