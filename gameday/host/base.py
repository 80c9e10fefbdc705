"""The host's interface: kernel log, programs, files, NVML, load and work.

A load is measured and ends. Work goes on in its own process, which dies with the agent that started it. So everything
that it held on the GPU becomes free, even if all else has failed.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Protocol

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter


class HostModel(BaseModel):
    """Base of the values that a host takes and returns; frozen."""

    model_config = ConfigDict(frozen=True)


class ProgramResult(HostModel):
    """The end of a program: its exit status and its output."""

    argv: tuple[str, ...]
    exit_status: int
    stdout: str
    stderr: str

    @property
    def output_line(self) -> str:
        """Both outputs on one line for an error message, at most 300 characters; empty if there is no output."""
        return " ".join(f"{self.stdout} {self.stderr}".split())[:300]


class GpuSample(HostModel):
    """A GPU's NVML readings at one moment. A field is None if NVML does not support it or cannot read it."""

    index: int
    uuid: str
    name: str
    pci_bus_id: str = Field(description="as the kernel log writes it, lower case without function: 0000:4e:00")
    lost: bool = Field(default=False, description="NVML_ERROR_GPU_IS_LOST: nothing below can be read")
    temperature_c: float | None = None
    memory_temperature_c: float | None = None
    max_operating_c: float | None = Field(default=None, description="the driver lowers the clocks above it")
    slowdown_c: float | None = Field(default=None, description="the hardware lowers the clocks at it")
    power_w: float | None = None
    power_limit_w: float | None = None
    power_limit_default_w: float | None = Field(default=None, description="the board's own limit")
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    memory_clock_mhz: float | None = None
    utilization_pct: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    clocks_event_reasons: int | None = Field(default=None, description="NVML bit mask")
    ecc_mode: bool | None = None
    ecc_mode_pending: bool | None = Field(default=None, description="the mode after the GPU's next reset")
    ecc_dbe_volatile: int | None = None
    ecc_sbe_volatile: int | None = None
    remapped_rows_correctable: int | None = None
    remapped_rows_uncorrectable: int | None = None
    row_remap_pending: bool | None = None
    row_remap_failure: bool | None = None
    nvlinks_active: int | None = None
    nvlinks_supported: int | None = None
    nvlink_mbps: int | None = Field(default=None, description="MB/s in one direction, common to the active links")
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replay_counter: int | None = None
    persistence_mode: bool | None = None
    cpu_affinity: str | None = Field(default=None, description="CPUs next to the GPU, as a list: 0-55,112-167")
    compute_pids: tuple[int, ...] | None = Field(default=None, description="processes with a CUDA context on it")


class LoadResult(HostModel):
    """A measured burst of work on one GPU. Its figures are None if it could not run; `detail` has the reason."""

    gpu: int
    gemm_tflops: float | None
    memory_bandwidth_gbs: float | None
    wrong_results: int = Field(default=0, description="GEMM elements that differ from the reference")
    detail: str = ""


Precision = Literal["half", "bf16", "single"]
"""The type of the elements that a GPU multiplies: FP16, BF16 or FP32."""


class _Order(HostModel):
    """Base of the orders for work; they take no unknown keys."""

    model_config = ConfigDict(extra="forbid")


class Burn(_Order):
    """An order to multiply matrices without pause. One product in each tenth of a second is checked."""

    kind: Literal["burn"] = "burn"
    precision: Precision = Field(
        default="half", description="half: FP16 on the tensor cores; bf16: BF16 there; single: FP32 without them"
    )
    utilization: float = Field(default=1.0, ge=0, le=1, description="share of the time that kernels run")


class HoldMemory(_Order):
    """An order to take all of the GPU's free memory except `leave_bytes`, and to hold it.

    With `block_bytes` the memory is then cut into blocks of that size, and every other block is freed. As in a training
    framework, freed blocks go back to the process's allocator, not to the GPU.
    """

    kind: Literal["memory"] = "memory"
    leave_bytes: int = Field(ge=0)
    block_bytes: int | None = Field(default=None, ge=1 << 20)


class CopyToGpu(_Order):
    """An order to copy from pinned host memory to the GPU, on these CPUs and from memory bound to one NUMA node."""

    kind: Literal["copy"] = "copy"
    cpus: tuple[int, ...] = Field(min_length=1)
    memory_node: int | None = Field(
        default=None, ge=0, le=1023, description="None: the memory next to the CPUs while there is any, not bound"
    )


class ProveMemory(_Order):
    """An order to write patterns over the GPU's free memory and read them back, once; the report is the result."""

    kind: Literal["memory-proof"] = "memory-proof"
    leave_bytes: int = Field(default=1 << 30, ge=0, description="left free, for the comparison and for others")


class ProbeMemory(_Order):
    """An order to find the largest free block of the GPU's memory by trying, and to give it back at once."""

    kind: Literal["memory-probe"] = "memory-probe"


class AllReduce(_Order):
    """An order to sum a message over these GPUs with NCCL, and to compare every sum; the report is the result."""

    kind: Literal["all-reduce"] = "all-reduce"
    gpus: tuple[int, ...] = Field(min_length=1)


CrashKernel = Literal["illegal_address", "misaligned_address", "shared_out_of_range", "stack_overflow", "trap"]
"""A kernel that faults, by what it does wrong (gameday.host.cuda_crash has their sources)."""


class Crash(_Order):
    """An order to run a kernel that faults, once; the report is the result, and the process is of no use after it."""

    kind: Literal["crash"] = "crash"
    kernel: CrashKernel


UNIQUE_ID = r"^([0-9a-f]{256})?$"
"""NCCL's unique id of a communicator in hexadecimal, or nothing: NCCL_UNIQUE_ID_BYTES is 128 in nccl.h."""


class AllReduceOverNodes(_Order):
    """An order to be one rank of an all-reduce over several nodes with NCCL, and to compare every sum.

    Rank 0 creates the communicator's unique id; it is its first report. The last report has `finished`.
    """

    kind: Literal["all-reduce-over-nodes"] = "all-reduce-over-nodes"
    rank: int = Field(ge=0, lt=64)
    ranks: int = Field(ge=2, le=64)
    unique_id: str = Field(default="", pattern=UNIQUE_ID, description="empty for rank 0, which makes it")
    interface: str = Field(min_length=1, max_length=15, description="of the node, for NCCL's sockets")
    hca: str | None = Field(
        default=None, max_length=63, description="of the node, for RDMA; None: sockets carry it all"
    )
    environment: dict[str, str] = Field(default={}, description="variables of the job, stronger than ours")
    bytes: int = Field(default=0, ge=0, le=1 << 34, description="of a round; 0: as many as take long enough")


WorkOrder = Annotated[
    Burn | HoldMemory | CopyToGpu | ProveMemory | ProbeMemory | AllReduce | AllReduceOverNodes | Crash,
    Field(discriminator="kind"),
]
WORK_ORDER: TypeAdapter[WorkOrder] = TypeAdapter(WorkOrder)


class XidEvent(HostModel):
    """NVML's event of a critical Xid; `at` is when it woke who waits for it."""

    code: int = Field(ge=0)
    at: AwareDatetime


class CrashReport(HostModel):
    """The end of a kernel that faults, as its own process saw it."""

    pid: int
    command: str = Field(max_length=15, description="the name by which the kernel knows the process: comm")
    launched_at: AwareDatetime
    error: str = Field(max_length=500, description="CUDA's error")
    nvml: XidEvent | None = None
    nvml_unseen: str = Field(default="", max_length=500, description="why there is no event; empty if there is")


class WorkReport(HostModel):
    """The state of work on a GPU, sent each half second. A figure is None if this kind of work has none."""

    seconds: float = Field(description="since the work began")
    tflops: float | None = None
    products: int = Field(default=0, description="GEMM products compared with the reference")
    wrong_results: int = Field(default=0, description="elements of those products that differ from the reference")
    digest: str = Field(default="", max_length=64, description="checksum of the first product")
    copy_gbs: float | None = None
    memory_node: int | None = Field(default=None, description="NUMA node that holds every page of the copy's source")
    proved_bytes: int | None = Field(default=None, description="written with every pattern and read back")
    wrong_words: int = Field(default=0, description="words of 8 bytes that did not hold a pattern")
    wrong_at: int | None = Field(default=None, description="the first one's offset in the proved bytes")
    bus_gbs: float | None = Field(default=None, description="bus bandwidth of an all-reduce, as nccl-tests defines it")
    wrong_sums: int = Field(default=0, description="sums of the all-reduce that were wrong, on all GPUs")
    unique_id: str = Field(default="", pattern=UNIQUE_ID, description="of NCCL's communicator, from rank 0")
    latency_ms: float | None = Field(default=None, ge=0, description="of an all-reduce of one word from each rank")
    round_bytes: int | None = Field(default=None, ge=0, description="of the round that `bus_gbs` is of")
    finished: bool = Field(default=False, description="the figures of an all-reduce over nodes are the last ones")
    held_bytes: int | None = Field(default=None, description="taken from the GPU")
    free_bytes: int | None = Field(default=None, description="left on the GPU for everybody else")
    unused_bytes: int | None = Field(default=None, description="of the bytes held, those that the allocator keeps")
    largest_block_bytes: int | None = Field(default=None, description="the largest piece that can still be allocated")
    crash: CrashReport | None = None
    error: str = Field(default="", description="why the work ended by itself; empty while it runs")
    no_link: bool = Field(default=False, description="`error` is NCCL's about the network between the ranks")


class GpuUser(HostModel):
    """A process that has the GPU's device open, or may have it."""

    pid: int
    command: str
    pod: str = Field(default="", description="UID of its pod; empty for the host's own processes")
    seen: bool = Field(default=True, description="False: even root may not read which files it has open")

    @property
    def line(self) -> str:
        """The process for an error message."""
        return f"{self.pid} {self.command}" + ("" if self.seen else " (not seen: its open files cannot be read)")


class DcgmEngine(HostModel):
    """A process that runs a DCGM host engine."""

    pid: int
    command: str
    pod: str = Field(default="", description="UID of its pod; empty for the host's own processes")
    embedded: bool = Field(description="a program with an engine of its own; False: nv-hostengine, for others to ask")


class DcgmEngines(HostModel):
    """The DCGM host engines of a node, as far as they can be seen."""

    engines: tuple[DcgmEngine, ...] = ()
    unseen: tuple[str, ...] = Field(default=(), description="what could not be looked at, and why")


class ApiServer(HostModel):
    """The API server as this pod reaches it, with the pod's service account."""

    url: str = Field(description="without a path: https://10.96.0.1:443")
    ca_file: Path = Field(description="certificates of those who may have signed the server's")
    token_file: Path = Field(description="read it again every minute or so: the kubelet renews the token in place")
    node: str = Field(default="", description="name of the node that this pod is on")


class Listener(NamedTuple):
    """A listening socket at an interface of the node, and its address for other nodes."""

    socket: socket.socket
    address: str
    port: int


class Host(Protocol):
    """A machine with GPUs, as the agent reaches it.

    Every method raises HostError, and nothing else, if the host refuses or cannot be reached. `gpu` is a GPU's NVML
    index.
    """

    is_virtual: bool
    """The GPUs are a model's: only their proofs may be as short as in a rehearsal."""

    def write_kernel_log(self, record: str) -> None:
        """Write one record to the kernel log.

        Args:
            record: The record with its `<N>` priority prefix, at most 976 bytes (docs/sources.md, printk and
                /dev/kmsg).
        """

    def read_kernel_log(self) -> list[str]:
        """Return the ring buffer's messages, oldest first, each with its `[seconds.micros] ` stamp as in dmesg."""

    def run(self, argv: Sequence[str], timeout_s: float, ended: threading.Event | None = None) -> ProgramResult:
        """Run a host program without a shell. A non-zero exit is a result, not an error.

        Args:
            argv: The program and its arguments.
            timeout_s: Seconds after which it is ended and an error raised.
            ended: Also ends the program, as soon as it is set; for long runs.
        """

    def read_file(self, path: str) -> str: ...

    def write_file(self, path: str, content: str) -> None:
        """Write a file's whole content at once, as it is.

        Args:
            path: A kernel setting, or NCCL's configuration.
            content: No newline is added; printk_devkmsg takes nothing without one.
        """

    def boot_id(self) -> str: ...

    def gpus(self) -> list[GpuSample]:
        """Return all GPUs that the driver knows, even lost ones, ordered by index."""

    def pod_gpus(self, namespace: str, pod: str) -> tuple[str, ...]:
        """Return the ids of the GPUs of a pod on this node, from the kubelet's pod-resources API.

        Raises:
            HostError: The kubelet cannot be asked, or knows no GPU of the pod.
        """

    def measure_load(self, gpu: int, seconds: float) -> LoadResult:
        """Measure FP16 GEMM and device-to-device copy, for about `seconds` together."""

    def start_work(self, gpu: int, order: WorkOrder) -> WorkReport:
        """Start work on a GPU and return its first report.

        Raises:
            LinkError: An all-reduce over nodes finds no way to the network.
            HostError: The GPU has work already, CuPy is missing, or the GPU lacks memory.
        """

    def steer_work(self, gpu: int, utilization: float) -> None:
        """Set the share of time, 0 to 1, for which a burn runs. A burn without this call for 10 s ends itself."""

    def work_report(self, gpu: int) -> WorkReport | None:
        """Return the latest report; None if this agent started no work on the GPU."""

    def end_work(self, gpu: int) -> WorkReport | None:
        """End our work on the GPU, including work that another agent started. Idempotent.

        Returns:
            The last report; None if this agent started no work on the GPU.
        """

    def has_work(self, gpu: int) -> bool:
        """Return True if our work runs on the GPU, started by this agent or another one."""

    def gpu_users(self, gpu: int) -> tuple[GpuUser, ...]:
        """Return every process that has the GPU open, monitors and daemons too, and those that cannot be seen."""

    def dcgm_engines(self) -> DcgmEngines:
        """Return every process that runs a DCGM host engine, and which processes could not be looked at."""

    def api_server(self) -> ApiServer:
        """Return how to reach the API server with this pod's account.

        Raises:
            HostError: The pod has no account; most agents' pods have none.
        """

    def own_address(self) -> str:
        """Return the address at which other agents' pods reach this one, independent of the node's own interfaces."""

    def listen(self, interface: str) -> Listener:
        """Listen on a free port at the IPv4 address of one of the node's interfaces.

        Raises:
            HostError: There is no such interface, or it has no IPv4 address.
        """

    def connect(self, interface: str, address: str, port: int, timeout_s: float) -> socket.socket:
        """Connect to another node through this interface of the node, and no other.

        Raises:
            LinkError: The network lets no connection through within `timeout_s`.
            HostError: There is no such interface.
        """
