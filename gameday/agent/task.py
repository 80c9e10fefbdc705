"""The agent's order and its answer, as JSON: the contract between the orchestrator and the pod.

The order arrives in the environment variable GAMEDAY_TASK. The answer is the
pod's termination message (at most 4096 bytes, the kubelet's limit), written to
the path in GAMEDAY_TERMINATION_LOG. QA results are too many for it: they go to
stdout, one `QaResult` JSON line each, read from the pod's log. Exit status: 0
clean and done, 1 dirty, unknown or failed, 2 an order the agent cannot read.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from gameday.host.base import GpuSample, GpuUser
from gameday.plan.canary import INTERFACE_NAME, Measure
from gameday.plan.models import QaFloors
from gameday.values.results import Cleanliness


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class InjectTask(_Model):
    """Inject, become ready, hold until SIGTERM or `hold_s`, undo, verify, end."""

    role: Literal["inject"] = "inject"
    run_id: str
    node: str
    gpu: int
    fault: dict[str, Any] = Field(
        description="the fault's parameters as plain data; validated by the fault's own model"
    )
    hold_s: float = Field(gt=0, le=86_400, description="seconds; the dead-man's switch, so it has an end: a day")


class UndoTask(_Model):
    """Only undo: sent by the reaper when an injector was killed before it could."""

    role: Literal["undo"] = "undo"
    run_id: str
    node: str
    gpu: int
    fault: dict[str, Any]
    undo_state: dict[str, str] = {}


Marker = Annotated[str, Field(pattern=r"^[a-z0-9-]{8,64}$", description="tells this run's line from all others")]


class MarkTask(_Model):
    """Write a harmless line to the kernel log, so that its way to the log store can be timed."""

    role: Literal["mark"] = "mark"
    run_id: str
    node: str
    marker: Marker
    reset_gpu: int | None = Field(
        default=None, description="a GPU that is to be reset: also ask nvidia-smi of it, and tell who has it open"
    )


class RemediateTask(_Model):
    role: Literal["remediate"] = "remediate"
    run_id: str
    node: str
    gpu: int | None = None
    action: str = Field(description="the name of a remediation")


class QaTask(_Model):
    """QA judges the kernel log from the marker's line on: what stood there before is not this run's doing."""

    role: Literal["qa"] = "qa"
    run_id: str
    node: str
    marker: Marker
    floors: QaFloors
    expected_gpus: int | None = None


class CanaryTask(_Model):
    """One measurement of what work reaches here; the answer is a `CanaryNote` line."""

    role: Literal["canary"] = "canary"
    run_id: str
    node: str
    measure: Measure
    gpus: int = Field(default=0, ge=0, le=64, description="how many the pod asks for")
    environment: dict[str, str] = Field(default={}, description="of the all-reduce; NCCL variables")
    over_network: bool = Field(default=False, description="all-reduce: neither peer to peer nor shared memory")
    far_from_gpu: bool = Field(default=False, description="copy: from the far NUMA node")
    interface: str | None = Field(default=None, pattern=INTERFACE_NAME, description="pings leave through it")
    peer: str | None = Field(default=None, description="an address; None: a neighbour of the interface")
    payload: int = Field(default=1400, ge=16, le=65_000, description="bytes of a ping")


class SampleTask(_Model):
    """Print every GPU's NVML reading, a `SampledNote` line each, until SIGTERM or `duration_s`."""

    role: Literal["sample"] = "sample"
    run_id: str
    node: str
    interval_s: float = Field(default=1.0, ge=0.1, le=60)
    duration_s: float = Field(gt=0, le=86_400)


Task = Annotated[
    InjectTask | UndoTask | MarkTask | RemediateTask | QaTask | CanaryTask | SampleTask, Field(discriminator="role")
]
TASK: TypeAdapter[Task] = TypeAdapter(Task)


class InjectedNote(_Model):
    """Printed to stdout, as one JSON line, the moment the fault is in (before readiness)."""

    note: Literal["injected"] = "injected"
    written_at: AwareDatetime
    evidence: tuple[str, ...]
    undo_state: dict[str, str]


class GpuUserNote(_Model):
    """A process that has the GPU open which is to be reset, printed as a JSON line."""

    note: Literal["gpu-user"] = "gpu-user"
    user: GpuUser


class PriorNote(_Model):
    """Printed right before the fault goes in: the one memory that outlives an agent killed before anybody heard it."""

    note: Literal["prior"] = "prior"
    undo_state: dict[str, str]


class CanaryNote(_Model):
    """What the canary measured, printed as a JSON line; None where it could not, and `detail` says why."""

    note: Literal["canary"] = "canary"
    value: float | None = Field(description="in the measure's unit")
    detail: str = ""
    peer: str = Field(default="", description="who answered the pings")


class SampledNote(_Model):
    """One GPU at one moment, printed as a JSON line."""

    note: Literal["sampled"] = "sampled"
    at: AwareDatetime
    gpu: GpuSample


class Outcome(_Model):
    """The termination message. Evidence is cut, oldest line first kept, to fit 4096 bytes.

    `cleanliness` tells whether anything that we put in is still there; whether
    the role reached its aim is `ok`.
    """

    role: str
    ok: bool
    cleanliness: Cleanliness
    written_at: AwareDatetime | None = Field(
        default=None, description="when the fault or marker was written; host clock"
    )
    ended_by: Literal["done", "sigterm", "hold", "error"] = "done"
    error: str = ""
    attempts: int = Field(default=1, description="how often undo was tried, where the role undoes")
    evidence: tuple[str, ...] = ()
    undo_state: dict[str, str] = {}

    @classmethod
    def parse(cls, termination_message: str) -> Outcome | None:
        """The outcome a pod left, or None: a pod's words are hostile input."""
        try:
            return cls.model_validate_json(termination_message)
        except ValidationError:
            return None


class QaResult(_Model):
    """One check of one GPU (`gpu` None: of the node), printed as a JSON line on stdout."""

    check: str
    gpu: int | None
    value: float | str | None
    unit: str = ""
    bound: str
    ok: bool | None
    seconds: float
    detail: str = ""
