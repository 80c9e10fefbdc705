"""The agent's tasks, notes and results as JSON: the contract between the orchestrator and the pod.

The task comes in the environment variable GAMEDAY_TASK. The result is the pod's termination message (at most 4096
bytes, the kubelet's limit), written to the path in GAMEDAY_TERMINATION_LOG. Notes and QA results are lines of JSON on
stdout, read from the pod's log. Exit status: 0 done and clean; 1 failed, dirty or unknown; 2 a task that cannot be
read.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from gameday.faults.dcgm_engines import EnginesSeen
from gameday.host.base import GpuSample, GpuUser
from gameday.plan.qa import LEAST_BURN_IN, NodeProof, QaFloors
from gameday.values.measures import HCA_NAME, INTERFACE_NAME, Backend, Measure
from gameday.values.memory import MemoryBlocks
from gameday.values.results import Cleanliness


class AgentMessage(BaseModel):
    """Base of the messages to and from the agent; frozen, and takes no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class InjectTask(AgentMessage):
    """A task to inject, become ready, hold until SIGTERM or `hold_s`, undo and verify."""

    role: Literal["inject"] = "inject"
    run_id: str
    node: str
    gpu: int
    fault: dict[str, Any] = Field(
        description="the fault's parameters as plain data; validated by the fault's own model"
    )
    hold_s: float = Field(gt=0, le=86_400, description="after so many seconds the fault comes out by itself")


class UndoTask(AgentMessage):
    """A task to undo and verify, sent if an injector was killed before it could."""

    role: Literal["undo"] = "undo"
    run_id: str
    node: str
    gpu: int
    fault: dict[str, Any]
    undo_state: dict[str, str] = {}


Marker = Annotated[str, Field(pattern=r"^[a-z0-9-]{8,64}$", description="distinguishes this run's line from others")]


class MarkTask(AgentMessage):
    """A task to write a harmless line to the kernel log, so that its way to the log store can be timed."""

    role: Literal["mark"] = "mark"
    run_id: str
    node: str
    marker: Marker
    reset_gpu: int | None = Field(
        default=None, description="a GPU to be reset: also query nvidia-smi for it, and print its users"
    )
    gpu_pods: bool = Field(default=False, description="also print, for every GPU, the pods that have it open")
    dcgm_engines: bool = Field(default=False, description="also print the node's DCGM host engines")
    needs_dcgmi: bool = Field(default=False, description="also see that dcgmi reaches a host engine, as QA will use it")


class RemediateTask(AgentMessage):
    """A task to reset a GPU, restart the driver or reboot the node."""

    role: Literal["remediate"] = "remediate"
    run_id: str
    node: str
    gpu: int | None = None
    pci: str | None = Field(default=None, max_length=32, description="the GPU by its address, if gpu is not known")
    action: str = Field(description="the name of a remediation")


class Proof(AgentMessage):
    """The proof that a node must give: a plan's `NodeProof` in the agent's units."""

    floors: QaFloors
    burn_in_s: float | None = Field(ge=LEAST_BURN_IN.total_seconds(), description="None: QA only reads")
    virtual_burn_in_s: float = Field(gt=0, description="the same on a virtual node; a real host never takes it")
    dcgm_diag: Literal[1, 2, 3] | None = Field(default=None, description="level of `dcgmi diag`; None: it is not run")


def proof_of(proof: NodeProof) -> Proof:
    """Return a plan's or a policy's proof in the agent's units."""
    burn_in = proof.burn_in.total_seconds() if proof.burn_in else None
    virtual = proof.virtual_burn_in.total_seconds()
    return Proof(floors=proof.floors, burn_in_s=burn_in, virtual_burn_in_s=virtual, dcgm_diag=proof.dcgm_diag)


class QaTask(AgentMessage):
    """A task to prove the node good. Only kernel-log lines from the marker on are judged."""

    role: Literal["qa"] = "qa"
    run_id: str
    node: str
    marker: Marker
    proof: Proof
    expected_gpus: int | None = None


class CanaryTask(AgentMessage):
    """A task to measure once what work achieves on the node; the answer is a `CanaryNote`."""

    role: Literal["canary"] = "canary"
    run_id: str
    node: str
    measure: Measure
    gpus: int = Field(default=0, ge=0, le=64, description="number of GPUs that the pod asks for")
    environment: dict[str, str] = Field(default={}, description="NCCL variables of the all-reduce")
    over_network: bool = Field(default=False, description="all-reduce: neither peer to peer nor shared memory")
    far_from_gpu: bool = Field(default=False, description="copy: from the far NUMA node")
    interface: str | None = Field(default=None, pattern=INTERFACE_NAME, description="pings leave through it")
    peer: str | None = Field(default=None, description="an address; None: a neighbour of the interface")
    gpu: int | None = Field(default=None, description="of the largest block: NVML's index; the pod owns no GPU then")
    payload: int = Field(default=1400, ge=16, le=65_000, description="bytes of a ping")


NodeName = Annotated[str, Field(max_length=253)]


class AllReduceTask(AgentMessage):
    """A task to be one rank of an all-reduce over several nodes; rank 0's answer is an `AllReduceNote`."""

    role: Literal["all-reduce"] = "all-reduce"
    run_id: str
    node: str
    rank: int = Field(ge=0, lt=64)
    nodes: tuple[NodeName, ...] = Field(min_length=2, max_length=64, description="by rank")
    backend: Backend = Backend.TCP
    gpus: int = Field(default=0, ge=0, le=1, description="number of GPUs that the pod asks for: NCCL's one")
    interface: str = Field(pattern=INTERFACE_NAME, description="on every node, the one that the data goes through")
    hca: str | None = Field(default=None, pattern=HCA_NAME, description="RDMA adapter that NCCL's data goes through")
    environment: dict[str, str] = Field(default={}, description="variables of the job, stronger than NCCL's from here")
    secret: str = Field(min_length=16, max_length=128, repr=False, description="every rank of the measurement has it")
    lead_address: str = Field(default="", max_length=45, description="where peers find rank 0, as its note says")
    lead_port: int = Field(default=0, ge=0, le=65_535)
    bytes: int = Field(default=0, ge=0, le=1 << 34, description="of a round; 0: as many as take long enough")


class GpuUsersTask(AgentMessage):
    """A task to print, for every GPU, the pods that have it open, as a `GpuPodsNote`."""

    role: Literal["gpu-users"] = "gpu-users"
    run_id: str
    node: str


class SampleTask(AgentMessage):
    """A task to print NVML's figures of every GPU as `SampledNote`s, until SIGTERM or `duration_s`."""

    role: Literal["sample"] = "sample"
    run_id: str
    node: str
    interval_s: float = Field(default=1.0, ge=0.1, le=60)
    duration_s: float = Field(gt=0, le=86_400)


class ProbeTask(AgentMessage):
    """A task to measure the pod's GPUs under full load, without a verdict; the answer is `ProbedNote`s."""

    role: Literal["probe"] = "probe"
    run_id: str
    node: str
    gpus: int = Field(ge=1, le=64, description="number of GPUs that the pod asks for")
    burn_in_s: float = Field(ge=LEAST_BURN_IN.total_seconds(), le=3600)
    virtual_burn_in_s: float = Field(ge=0, le=3600)
    temperature_max_c: float | None = Field(description="the load ends if a GPU is hotter")


Task = Annotated[
    InjectTask
    | UndoTask
    | MarkTask
    | RemediateTask
    | QaTask
    | CanaryTask
    | AllReduceTask
    | GpuUsersTask
    | SampleTask
    | ProbeTask,
    Field(discriminator="role"),
]
TASK: TypeAdapter[Task] = TypeAdapter(Task)


class InjectedNote(AgentMessage):
    """The note that the fault is in, printed right before the pod becomes Ready."""

    note: Literal["injected"] = "injected"
    written_at: AwareDatetime
    evidence: tuple[str, ...]
    undo_state: dict[str, str]
    memory: MemoryBlocks | None = None
    logged_at: AwareDatetime | None = None
    nvml_at: AwareDatetime | None = None


class GpuUserNote(AgentMessage):
    """The note of a process that has the GPU open that is to be reset."""

    note: Literal["gpu-user"] = "gpu-user"
    user: GpuUser


_Engines = Annotated[tuple[Annotated[str, Field(max_length=1000)], ...], Field(max_length=64)]


class DcgmEnginesNote(AgentMessage):
    """The note of the DCGM host engines besides the one that dcgmi asks: `EnginesSeen`, bounded."""

    note: Literal["dcgm-engines"] = "dcgm-engines"
    blind: _Engines
    others: _Engines
    unseen: _Engines

    @classmethod
    def of(cls, seen: EnginesSeen) -> DcgmEnginesNote:
        """Return the engines that were seen, shortened to the note's bounds."""
        cut = {key: [str(line)[:1000] for line in lines[:64]] for key, lines in seen}
        return cls.model_validate(cut)


class GpuPodsNote(AgentMessage):
    """The note of the pods that have a GPU open."""

    note: Literal["gpu-pods"] = "gpu-pods"
    gpu: int = Field(ge=0, description="NVML index")
    pci: str = Field(description="address of the GPU, like 0000:4e:00")
    pods: tuple[str, ...] = Field(description="their UIDs, each once")


class PriorNote(AgentMessage):
    """The note of the values before the fault, printed right before it goes in, in case the agent is killed."""

    note: Literal["prior"] = "prior"
    undo_state: dict[str, str]


class CanaryNote(AgentMessage):
    """The note of a canary's measurement; `value` is None if there is none, and `detail` has the reason."""

    note: Literal["canary"] = "canary"
    value: float | None = Field(description="in the measure's unit")
    detail: str = ""
    peer: str = Field(default="", description="address that answered the pings")


class RendezvousNote(AgentMessage):
    """The note of where rank 0 of an all-reduce waits for the others, printed right before its pod becomes Ready."""

    note: Literal["rendezvous"] = "rendezvous"
    address: str = Field(max_length=45)
    port: int = Field(ge=1, le=65_535)


class AllReduceNote(AgentMessage):
    """The note of an all-reduce over nodes; `value` is None if there is none, and `detail` has the reason."""

    note: Literal["all-reduce"] = "all-reduce"
    value: float | None = Field(ge=0, description="bus bandwidth as nccl-tests define it, GB/s")
    detail: str = ""
    latency_ms: float | None = Field(default=None, ge=0, description="of an all-reduce of one element from each rank")
    bytes: int = Field(default=0, ge=0, description="of a round")
    ranks: int = Field(default=0, ge=0)


_Count = Annotated[int, Field(ge=0, lt=1 << 64)]


class SampledGpu(AgentMessage):
    """The figures of a GPU that change by themselves, as NVML shows them; None as in `GpuSample`."""

    index: int = Field(ge=0, lt=256)
    lost: bool
    temperature_c: float | None
    memory_temperature_c: float | None
    power_w: float | None
    sm_clock_mhz: float | None
    utilization_pct: float | None
    memory_used_bytes: _Count | None
    clocks_event_reasons: _Count | None
    ecc_dbe_volatile: _Count | None
    ecc_sbe_volatile: _Count | None
    pcie_replay_counter: _Count | None

    @classmethod
    def of(cls, sample: GpuSample) -> SampledGpu:
        """Return a reading's figures."""
        return cls.model_validate(sample.model_dump(include=set(cls.model_fields)))


class SampledNote(AgentMessage):
    """The note of NVML's figures of every GPU at one moment."""

    note: Literal["sampled"] = "sampled"
    at: AwareDatetime
    gpus: tuple[SampledGpu, ...] = Field(max_length=64)


_Figure = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ProbedNote(AgentMessage):
    """The note of one GPU under full load. A figure is None if it was not measured, and `why_not` has the reason."""

    note: Literal["probed"] = "probed"
    gpu: int = Field(ge=0, lt=256)
    uuid: str = Field(max_length=100)
    model: str = Field(max_length=100)
    gemm_tflops: _Figure | None = None
    memory_gbs: _Figure | None = None
    link_gbs: _Figure | None = Field(default=None, description="a copy from the nearest host memory")
    nvlink_gbs: _Figure | None = Field(default=None, description="rate of the active NVLinks together, one direction")
    all_reduce_gbs: _Figure | None = Field(default=None, description="of all GPUs of the pod together")
    all_reduce_gpus: int = Field(default=0, ge=0, le=64)
    sm_clock_mhz: _Figure | None = Field(default=None, description="median of the load's second half")
    temperature_c: _Figure | None = Field(default=None, description="highest of the load")
    power_w: _Figure | None = Field(default=None, description="median of the load's second half")
    slowed_by: tuple[Annotated[str, Field(max_length=60)], ...] = Field(default=(), max_length=16)
    why_not: str = Field(default="", max_length=600)


class AgentResult(AgentMessage):
    """The result of a task, which the agent writes as its pod's termination message."""

    role: str
    ok: bool = Field(description="True if the role reached its aim")
    cleanliness: Cleanliness = Field(description="clean if everything that the agent put in is out again")
    written_at: AwareDatetime | None = Field(
        default=None, description="when the fault or marker was written; host clock"
    )
    ended_by: Literal["done", "sigterm", "hold", "error"] = "done"
    error: str = ""
    attempts: int = Field(default=1, description="number of attempts to undo, for a role that undoes")
    evidence: tuple[str, ...] = Field(default=(), description="cut from its end, to fit the termination message")
    undo_state: dict[str, str] = {}

    @property
    def went_in(self) -> bool | None:
        """True if an injector's fault went in; None if it failed halfway, so that a part may have gone in."""
        return True if self.written_at else None if self.evidence else False

    @classmethod
    def parse(cls, termination_message: str) -> AgentResult | None:
        """Return the result in a pod's termination message, which is hostile input; None if there is none."""
        try:
            return cls.model_validate_json(termination_message)
        except ValidationError:
            return None


class QaResult(AgentMessage):
    """The result of a QA check, printed as a line of JSON."""

    check: str
    gpu: int | None = Field(description="None: the check is of the node")
    value: float | str | None
    unit: str = ""
    bound: str
    ok: bool | None
    seconds: float
    detail: str = ""


Note = TypeVar("Note", bound=BaseModel)


def notes_in(log: str, model: type[Note]) -> list[Note]:
    """Return the notes of one model in an agent's log, in order; all other lines are skipped.

    A pod's log is hostile input. Lines end only at a newline: str.splitlines would also cut at Unicode's line
    separators, which JSON leaves as they are and which may be in a process's name.
    """
    notes = []
    for line in log.split("\n"):
        try:
            notes.append(model.model_validate_json(line))
        except ValidationError:
            continue
    return notes
