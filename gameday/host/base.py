"""What the agent may ask of a host: write the kernel log, run a program, read and write files, NVML, load, work.

A load is measured and over. Work goes on: it runs in a process of its own that
dies with the agent that began it, so that whatever it held on the GPU is free
again when everything else has failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class ProgramResult(BaseModel):
    model_config = ConfigDict(frozen=True)

    argv: tuple[str, ...]
    exit_status: int
    stdout: str
    stderr: str

    @property
    def said(self) -> str:
        """What it wrote, in one line for an error's text: at most 300 characters; empty where it wrote nothing."""
        return " ".join(f"{self.stdout} {self.stderr}".split())[:300]


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
    power_limit_default_w: float | None = Field(default=None, description="what the board is built for")
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    memory_clock_mhz: float | None = None
    utilization_pct: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    clocks_event_reasons: int | None = Field(default=None, description="NVML bit mask")
    ecc_mode: bool | None = None
    ecc_mode_pending: bool | None = Field(default=None, description="what the next reset of the GPU makes of it")
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
    cpu_affinity: str | None = Field(default=None, description="CPUs next to the GPU, as a list: 0-55,112-167")


class LoadResult(BaseModel):
    """A measured burst of work on one GPU; None where it could not be run, and `detail` says why."""

    model_config = ConfigDict(frozen=True)

    gpu: int
    gemm_tflops: float | None
    memory_bandwidth_gbs: float | None
    wrong_results: int = Field(default=0, description="GEMM elements that differ from the reference")
    detail: str = ""


class _Order(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Burn(_Order):
    """GEMM after GEMM, a product of each tenth of a second checked element by element."""

    kind: Literal["burn"] = "burn"
    precision: Literal["half", "single"] = Field(
        default="half", description="half: tensor cores, in FP16 for want of BF16 in CuPy; single: FP32"
    )
    utilization: float = Field(default=1.0, ge=0, le=1, description="share of the time that kernels run")


class HoldMemory(_Order):
    """Take the GPU's memory, all but `leave_bytes`, and keep it; `block_bytes`: then cut it up, every other one freed.

    What is freed goes back to the allocator of the process that holds it, as
    a training framework's does, and not to the GPU.
    """

    kind: Literal["memory"] = "memory"
    leave_bytes: int = Field(ge=0)
    block_bytes: int | None = Field(default=None, ge=1 << 20)


class CopyToGpu(_Order):
    """Copy from pinned host memory to the GPU, from these CPUs and the memory next to them."""

    kind: Literal["copy"] = "copy"
    cpus: tuple[int, ...] = Field(min_length=1)


WorkOrder = Annotated[Burn | HoldMemory | CopyToGpu, Field(discriminator="kind")]
WORK_ORDER: TypeAdapter[WorkOrder] = TypeAdapter(WorkOrder)


class WorkReport(BaseModel):
    """How the work goes, each half second; None: no such figure for this kind. `error`: it ended by itself, and why."""

    model_config = ConfigDict(frozen=True)

    seconds: float = Field(description="since the work began")
    tflops: float | None = None
    products: int = Field(default=0, description="GEMM products compared with the reference")
    wrong_results: int = Field(default=0, description="elements of those that differ from it")
    copy_gbs: float | None = None
    held_bytes: int | None = Field(default=None, description="taken from the GPU")
    free_bytes: int | None = Field(default=None, description="left on the GPU for everybody else")
    unused_bytes: int | None = Field(default=None, description="of those held, not in use: the allocator's own")
    largest_block_bytes: int | None = Field(default=None, description="the largest piece that can still be allocated")
    error: str = ""


class GpuUser(BaseModel):
    """A process that has the GPU's device open."""

    model_config = ConfigDict(frozen=True)

    pid: int
    command: str
    pod: str = Field(default="", description="UID of its pod; empty: of the host's own processes")


class Host(Protocol):
    """Every method raises HostError, and nothing else, when the host says no."""

    def write_kernel_log(self, record: str) -> None:
        """One record, `<N>` priority prefix included; at most 976 bytes (docs/sources.md, printk and /dev/kmsg)."""

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

    def start_work(self, gpu: int, order: WorkOrder) -> WorkReport:
        """Begin, and return the first report. At most one work a GPU; a lack of CuPy or of memory is a HostError."""

    def steer_work(self, gpu: int, utilization: float) -> None:
        """Give a burn its share of the time, 0 to 1, anew: one that is told nothing for ten seconds ends."""

    def work_report(self, gpu: int) -> WorkReport | None:
        """The latest report; None where this host began no work."""

    def end_work(self, gpu: int) -> WorkReport | None:
        """End our work on the GPU, also what another agent began; the last report of our own. Idempotent."""

    def work_runs(self, gpu: int) -> bool:
        """Whether work of ours runs on the GPU, whoever began it."""

    def gpu_users(self, gpu: int) -> tuple[GpuUser, ...]:
        """Every process that has the GPU open, monitors and daemons included."""
