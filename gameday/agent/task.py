"""The agent's order and its answer, as JSON: the contract between the orchestrator and the pod.

The order arrives in the environment variable GAMEDAY_TASK. The answer is the
pod's termination message (at most 4096 bytes, the kubelet's limit), written to
the path in GAMEDAY_TERMINATION_LOG. QA results are too many for it: they go to
stdout, one `QaResult` JSON line each, read from the pod's log.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter

from gameday.history.events import Cleanliness
from gameday.plan.models import QaFloors, RemediationAction


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class InjectTask(_Model):
    """Inject, become ready, hold until SIGTERM or `hold_s`, undo, verify, end."""

    role: Literal["inject"] = "inject"
    run_id: str
    node: str
    gpu: int
    fault: dict[str, Any] = Field(description="the fault's parameters as plain data; validated by the fault's own model")
    hold_s: float


class UndoTask(_Model):
    """Only undo: sent by the reaper when an injector was killed before it could."""

    role: Literal["undo"] = "undo"
    run_id: str
    node: str
    gpu: int
    fault: dict[str, Any]
    undo_state: dict[str, str] = {}


class MarkTask(_Model):
    """Write a harmless line to the kernel log, so that its way to the log store can be timed."""

    role: Literal["mark"] = "mark"
    run_id: str
    node: str
    marker: str = Field(pattern=r"^[a-z0-9-]{8,64}$")


class RemediateTask(_Model):
    role: Literal["remediate"] = "remediate"
    run_id: str
    node: str
    gpu: int | None = None
    action: RemediationAction


class QaTask(_Model):
    role: Literal["qa"] = "qa"
    run_id: str
    node: str
    floors: QaFloors
    expected_gpus: int | None = None


Task = Annotated[InjectTask | UndoTask | MarkTask | RemediateTask | QaTask, Field(discriminator="role")]
TASK: TypeAdapter[Task] = TypeAdapter(Task)


class InjectedNote(_Model):
    """Printed to stdout, as one JSON line, the moment the fault is in (before readiness)."""

    note: Literal["injected"] = "injected"
    written_at: AwareDatetime
    evidence: tuple[str, ...]
    undo_state: dict[str, str]


class Outcome(_Model):
    """The termination message. Evidence is cut, oldest line first kept, to fit 4096 bytes."""

    role: str
    ok: bool
    cleanliness: Cleanliness
    written_at: AwareDatetime | None = Field(default=None, description="when the fault or marker was written; host clock")
    ended_by: Literal["done", "sigterm", "hold", "error"] = "done"
    error: str = ""
    evidence: tuple[str, ...] = ()
    undo_state: dict[str, str] = {}


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
