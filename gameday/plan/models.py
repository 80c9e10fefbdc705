"""A plan's models: frozen, closed (unknown keys are refused) and free of any client.

A fault's parameters are a model of its own, defined beside the fault; a plan
is validated against whichever parameter models the caller knows (see
`plan.load`), so that a new fault needs no edit here.
"""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializeAsAny,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}
_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>ms|s|m|h)")


def parse_duration(value: object) -> object:
    """`90s`, `1m30s`, `500ms` -> timedelta; anything else is a ValueError that says how to write it."""
    if isinstance(value, timedelta):
        return value
    parts = list(_DURATION.finditer(value)) if isinstance(value, str) else []
    if not parts or "".join(part.group() for part in parts) != value:
        raise ValueError("a duration is written with its unit, like 60s, 5m or 1m30s")
    return sum(
        (timedelta(**{_UNITS[part["unit"]]: float(part["number"])}) for part in parts), timedelta()
    )


def format_duration(value: timedelta) -> str:
    seconds = value.total_seconds()
    return f"{seconds:g}s"


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema(
        {"type": "string", "pattern": r"^(\d+(\.\d+)?(ms|s|m|h))+$", "examples": ["60s", "5m", "1m30s"]}
    ),
]

LabelKey = Annotated[str, Field(pattern=r"^([a-z0-9A-Z]([-a-z0-9A-Z.]*[a-z0-9A-Z])?/)?[a-zA-Z0-9]([-a-zA-Z0-9_.]*[a-zA-Z0-9])?$", max_length=317)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class FaultParameters(_Model):
    """Base of every fault's parameters; `type` names the fault.

    A subclass narrows `type` to one Literal and adds its own bounded fields.
    """

    type: str
    hold: Duration = timedelta(seconds=60)
    """How long the fault stays in when nobody takes it out: the agent's own deadline."""


class Targets(_Model):
    """Which nodes, chosen once before anything changes, by a seeded rule, among nodes that opted in."""

    nodes: int = Field(default=1, ge=1, le=100)
    """How many nodes."""
    names: tuple[str, ...] = ()
    """Only these nodes; empty means any that match."""
    selector: dict[LabelKey, str] = {}
    """Labels a node must carry, beside the opt-in label of the cluster profile."""
    seed: int = 1
    """Two runs with one seed over the same candidates choose the same nodes."""


class Baseline(_Model):
    window: Duration = timedelta(seconds=30)
    """How far back the frames of the steady state reach."""
    log_path_within: Duration = timedelta(seconds=30)
    """A harmless marker line must be found in the log store within this."""


class ExpectedAlert(_Model):
    name: str
    """The rule's `alert:` name."""
    within: Duration
    """From the fault going in to the alert firing for the target node."""
    labels: dict[str, str] = {}
    """Labels the alert must carry, beside the node's."""
    resolves_within: Duration = timedelta(minutes=5)
    """From the end of remediation to the alert no longer firing."""


class TaintEffect(StrEnum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class ExpectedTaint(_Model):
    key: LabelKey
    value: str = ""
    effect: TaintEffect = TaintEffect.NO_SCHEDULE
    within: Duration
    """From the fault going in to the taint being on the node."""


class ExpectedWorkloads(_Model):
    running_pods: Literal["kept", "evicted", "any"] = "any"
    """What becomes of the GPU pods that ran on the node when the fault went in."""
    canary_kept_off_for: Duration = timedelta(seconds=3)
    """How long a GPU pod that asks for this node must stay unscheduled."""
    resubmitted_within: Duration = timedelta(seconds=60)
    """A resubmitted GPU job must run on another node within this."""


class Expectations(_Model):
    alerts: tuple[ExpectedAlert, ...] = ()
    taints: tuple[ExpectedTaint, ...] = ()
    workloads: ExpectedWorkloads = ExpectedWorkloads()
    allow_other_alerts: bool = False
    """Whether alerts nobody named may fire in the window without breaking the run."""


class RemediationAction(StrEnum):
    NONE = "none"
    GPU_RESET = "gpu-reset"
    DRIVER_RESTART = "driver-restart"
    REBOOT = "reboot"


class Recovery(_Model):
    remediation: RemediationAction = RemediationAction.NONE
    within: Duration = timedelta(minutes=10)
    """From the start of the step to the node Ready again."""


class QaFloors(_Model):
    """What a node must show before it takes work again. None switches a check off."""

    gpus: int | None = Field(default=None, ge=1, le=64)
    """GPUs NVML must count; None means the node's nvidia.com/gpu capacity."""
    gemm_tflops: float | None = Field(default=None, gt=0)
    """BF16 dense GEMM rate, TFLOP/s per GPU."""
    memory_bandwidth_gbs: float | None = Field(default=None, gt=0)
    """Device-to-device copy rate, GB/s per GPU."""
    pcie_generation: int | None = Field(default=None, ge=1, le=7)
    pcie_width: int | None = Field(default=None, ge=1, le=32)
    nvlinks: int | None = Field(default=None, ge=0, le=72)
    """NVLinks that must be active per GPU."""
    temperature_max_c: float | None = Field(default=93, gt=0)
    """GPU temperature ceiling, degrees Celsius (93: research/gpu-health.md 5.5, CCH's warning level)."""


class Qa(_Model):
    floors: QaFloors = QaFloors()
    within: Duration = timedelta(minutes=10)


class Guardrails(_Model):
    max_nodes: int = Field(default=1, ge=1)
    max_duration: Duration = timedelta(minutes=30)
    """The whole run; tripping it aborts and undoes."""


class Plan(_Model):
    """One game-day."""

    apiVersion: Literal["gameday/v1"]
    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)
    title: str = Field(max_length=200)
    hypothesis: str
    detector: str = "gameday"
    """The detector profile whose expectations these are."""
    fault: SerializeAsAny[FaultParameters]
    targets: Targets = Targets()
    baseline: Baseline = Baseline()
    expect: Expectations
    recover: Recovery = Recovery()
    qa: Qa = Qa()
    guardrails: Guardrails = Guardrails()

    @field_validator("fault", mode="wrap")
    @classmethod
    def _resolve_fault(cls, value: Any, handler: Any, info: ValidationInfo) -> FaultParameters:
        if isinstance(value, FaultParameters):
            return value
        known: dict[str, type[FaultParameters]] = (info.context or {}).get("faults", {})
        name = value.get("type") if isinstance(value, dict) else None
        if name not in known:
            raise ValueError(f"unknown fault type {name!r}; known: {', '.join(sorted(known)) or 'none'}")
        return known[name].model_validate(value, context=info.context)

    @model_validator(mode="after")
    def _fits_together(self) -> Plan:
        if self.targets.nodes > self.guardrails.max_nodes:
            raise ValueError(
                f"targets.nodes ({self.targets.nodes}) is more than guardrails.max_nodes ({self.guardrails.max_nodes})"
            )
        if self.targets.names and len(self.targets.names) < self.targets.nodes:
            raise ValueError(f"targets.nodes is {self.targets.nodes}, but targets.names lists {len(self.targets.names)}")
        slowest = max((e.within for e in (*self.expect.alerts, *self.expect.taints)), default=timedelta())
        if slowest > self.guardrails.max_duration:
            raise ValueError(
                f"an expectation's within ({format_duration(slowest)}) is longer than guardrails.max_duration "
                f"({format_duration(self.guardrails.max_duration)})"
            )
        return self
