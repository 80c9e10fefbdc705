"""A plan's models: frozen, closed (unknown keys are refused) and free of any client.

A fault's parameters are a model of its own, defined beside the fault; a plan
is validated against whichever parameter models the caller knows (see
`plan.load`), so that a new fault needs no edit here.

Combinations that can never hold are refused here with a `conflict` error that
names the field to change in its context (`at`), so that the loader can point
at the line.
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
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}
_DURATION = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>ms|s|m|h)")
_DURATION_MAX_CHARACTERS = 24
"""Room for `100h59m59s999ms`; anything longer is no duration, and would cost the pattern quadratic time."""


def parse_duration(value: object) -> object:
    """`90s`, `1m30s`, `500ms` -> timedelta; anything else is a ValueError that says how to write it."""
    if isinstance(value, timedelta):
        return value
    written = value if isinstance(value, str) and len(value) <= _DURATION_MAX_CHARACTERS else ""
    parts = list(_DURATION.finditer(written))
    if not parts or "".join(part.group() for part in parts) != written:
        raise PydanticCustomError("duration", "a duration is written with its unit, like 60s, 5m or 1m30s")
    try:
        return sum((timedelta(**{_UNITS[part["unit"]]: float(part["number"])}) for part in parts), timedelta())
    except OverflowError:
        raise PydanticCustomError("duration", "a duration of more than 999999999 days cannot be kept") from None


def format_duration(value: timedelta) -> str:
    """The shortest spelling `parse_duration` reads back, in seconds: `90s`, `0.5s`."""
    return f"{value.total_seconds():.6f}".rstrip("0").rstrip(".") + "s"


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    Field(ge=timedelta()),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$",
            "maxLength": _DURATION_MAX_CHARACTERS,
            "examples": ["60s", "5m", "1m30s"],
        }
    ),
]


Bound = Annotated[Duration, Field(gt=timedelta())]
"""A duration something must happen within: within 0s nothing ever does."""

PLAN_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
NODE_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
ALERT_NAME = r"^[a-zA-Z_:][a-zA-Z0-9_:]*$"
LABEL_KEY = r"^([a-z0-9A-Z]([-a-z0-9A-Z.]*[a-z0-9A-Z])?/)?[a-zA-Z0-9]([-a-zA-Z0-9_.]*[a-zA-Z0-9])?$"
LABEL_VALUE = r"^([a-zA-Z0-9]([-a-zA-Z0-9_.]*[a-zA-Z0-9])?)?$"

# Lengths are Kubernetes' own: a DNS prefix of 253, a slash and a name of 63; values 63; node names 253.
LabelKey = Annotated[str, Field(pattern=LABEL_KEY, max_length=317)]
LabelValue = Annotated[str, Field(pattern=LABEL_VALUE, max_length=63)]
NodeName = Annotated[str, Field(pattern=NODE_NAME, max_length=253)]


def conflict(at: tuple[str | int, ...], reason: str) -> PydanticCustomError:
    """An error about two fields that do not fit; `at` is the path, from the model that raises, of the one to change."""
    return PydanticCustomError("conflict", "{reason}", {"reason": reason, "at": at})


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
    names: tuple[NodeName, ...] = ()
    """Only these nodes; empty means any that match."""
    selector: dict[LabelKey, LabelValue] = {}
    """Labels a node must carry, beside the opt-in label of the cluster profile."""
    seed: int = 1
    """Two runs with one seed over the same candidates choose the same nodes."""


class Baseline(_Model):
    """The steady state, looked at before anything is changed."""

    window: Duration = timedelta(seconds=30)
    """How far back the frames of the steady state reach."""
    log_path_within: Duration = timedelta(seconds=30)
    """A harmless marker line must be found in the log store within this."""


class ExpectedAlert(_Model):
    """One alert that must fire for the target."""

    name: str = Field(pattern=ALERT_NAME, max_length=200)
    """The rule's `alert:` name."""
    within: Bound
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
    """One taint that must appear on the target."""

    key: LabelKey
    """The taint's key, e.g. `trainy.konduktor.ai/faulty`."""
    value: LabelValue = ""
    effect: TaintEffect = TaintEffect.NO_SCHEDULE
    within: Bound
    """From the fault going in to the taint being on the node."""


class ExpectedWorkloads(_Model):
    """What the quarantine is for: where work may and may not run."""

    running_pods: Literal["kept", "evicted", "any"] = "any"
    """What becomes of the GPU pods that ran on the node when the fault went in.

    Judged between the fault going in and the start of the recover step: a
    remediation such as a reboot ends them by itself, and is not held against
    `kept`.
    """
    canary_kept_off_for: Duration = timedelta(seconds=3)
    """How long a GPU pod that asks for this node must stay unscheduled."""
    resubmitted_within: Duration = timedelta(seconds=60)
    """A resubmitted GPU job must run on another node within this."""


class Expectations(_Model):
    """What must, and what must not, happen once the fault is in."""

    alerts: tuple[ExpectedAlert, ...] = ()
    """Alerts that must fire for the target."""
    taints: tuple[ExpectedTaint, ...] = ()
    """Taints that must appear on the target."""
    stays_schedulable_for: Bound | None = None
    """Makes the plan a negative control: for this long from the fault going in, the target gains no taint
    and is not cordoned. Excludes `taints`."""
    workloads: ExpectedWorkloads = ExpectedWorkloads()
    """Where work may run while the target is quarantined. A negative control only uses `running_pods`."""
    allow_other_alerts: bool = False
    """Whether alerts nobody named may fire in the window without breaking the run."""
    forbidden_severities: tuple[str, ...] = ()
    """`severity` labels that no unnamed alert for the target may carry, even where other alerts are allowed."""

    @model_validator(mode="after")
    def _can_be_broken(self) -> Expectations:
        if not (self.alerts or self.taints or self.stays_schedulable_for):
            raise conflict(
                (), "a plan that expects nothing can prove nothing: name alerts, taints or stays_schedulable_for"
            )
        if self.taints and self.stays_schedulable_for is not None:
            raise conflict(
                ("stays_schedulable_for",), "a node cannot gain the taints listed here and stay schedulable too"
            )
        if self.forbidden_severities and not self.allow_other_alerts:
            raise conflict(
                ("forbidden_severities",),
                "while allow_other_alerts is false every unnamed alert breaks the run already; "
                "set allow_other_alerts: true to forbid only these severities",
            )
        return self


class RemediationAction(StrEnum):
    NONE = "none"
    GPU_RESET = "gpu-reset"
    DRIVER_RESTART = "driver-restart"
    REBOOT = "reboot"


class Recovery(_Model):
    """How the node is repaired once the fault is out."""

    remediation: RemediationAction = RemediationAction.NONE
    within: Duration = timedelta(minutes=10)
    """From the start of the step to the node Ready again."""


class QaFloors(_Model):
    """What a node must show before it takes work again. None switches a check off."""

    gpus: int | None = Field(default=None, ge=1, le=64)
    """GPUs NVML must count; None means the node's nvidia.com/gpu capacity."""
    gemm_tflops: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """BF16 dense GEMM rate, TFLOP/s per GPU."""
    memory_bandwidth_gbs: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Device-to-device copy rate, GB/s per GPU."""
    pcie_generation: int | None = Field(default=None, ge=1, le=7)
    pcie_width: int | None = Field(default=None, ge=1, le=32)
    nvlinks: int | None = Field(default=None, ge=0, le=72)
    """NVLinks that must be active per GPU."""
    temperature_max_c: float | None = Field(default=93, gt=0, allow_inf_nan=False)
    """GPU temperature ceiling, degrees Celsius (93: research/gpu-health.md 5.5, CCH's warning level)."""

    @property
    def need_load(self) -> bool:
        """Whether a floor can only be judged by loading the GPUs. Without one QA leaves running work alone."""
        return self.gemm_tflops is not None or self.memory_bandwidth_gbs is not None


class Qa(_Model):
    """The proof that the node is good, before it takes work again."""

    floors: QaFloors = QaFloors()
    within: Duration = timedelta(minutes=10)
    """From the start of the step to the last check's result."""


class Guardrails(_Model):
    """What this game-day may at most cost."""

    max_nodes: int = Field(default=1, ge=1)
    """The most nodes that may be broken at once."""
    max_duration: Duration = timedelta(minutes=30)
    """The whole run; tripping it aborts and undoes."""


class Plan(_Model):
    """One game-day."""

    apiVersion: Literal["gameday/v1"]
    name: str = Field(pattern=PLAN_NAME, max_length=63)
    """Also the file's name: lower-case letters, digits and `-`."""
    title: str = Field(min_length=1, max_length=200)
    """One line for lists and the report's head."""
    hypothesis: str = Field(min_length=1, max_length=4000)
    """What the cluster's owners believe, in a sentence the report can hold against what was measured."""
    detector: str = Field(default="gameday", max_length=63)
    """The detector profile whose expectations these are."""
    fault: SerializeAsAny[FaultParameters]
    """What is broken, and how; `type` names it."""
    targets: Targets = Targets()
    baseline: Baseline = Baseline()
    expect: Expectations
    recover: Recovery = Recovery()
    qa: Qa = Qa()
    guardrails: Guardrails = Guardrails()

    @field_validator("fault", mode="wrap")
    @classmethod
    def _resolve_fault(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> FaultParameters:
        if isinstance(value, FaultParameters):
            return value
        known: dict[str, type[FaultParameters]] = (info.context or {}).get("faults", {})
        if not isinstance(value, dict):
            resolved: FaultParameters = handler(value)  # raises: not a mapping
            return resolved
        name = value.get("type")
        if not isinstance(name, str) or name not in known:
            raise PydanticCustomError(
                "fault_type",
                "unknown fault type; known: {known}" if "type" in value else "a fault needs its type; known: {known}",
                {"known": ", ".join(sorted(known)) or "none", "at": ("type",)},
            )
        return known[name].model_validate(value, context=info.context)

    @model_validator(mode="after")
    def _fits_together(self) -> Plan:
        longest = self.guardrails.max_duration
        if self.targets.nodes > self.guardrails.max_nodes:
            raise conflict(
                ("targets", "nodes"),
                f"targets.nodes ({self.targets.nodes}) is more than guardrails.max_nodes ({self.guardrails.max_nodes})",
            )
        if self.targets.names and len(self.targets.names) < self.targets.nodes:
            raise conflict(
                ("targets", "names"),
                f"targets.nodes is {self.targets.nodes}, but targets.names lists {len(self.targets.names)}",
            )
        for at, bound in self._bounds():
            if bound > longest:
                raise conflict(
                    at,
                    f"this bound ({format_duration(bound)}) is longer than guardrails.max_duration "
                    f"({format_duration(longest)}), which would abort the run first",
                )
        return self

    def _bounds(self) -> list[tuple[tuple[str | int, ...], timedelta]]:
        expect = self.expect
        quiet = expect.stays_schedulable_for
        return [
            *((("expect", "alerts", i, "within"), alert.within) for i, alert in enumerate(expect.alerts)),
            *((("expect", "taints", i, "within"), taint.within) for i, taint in enumerate(expect.taints)),
            *([(("expect", "stays_schedulable_for"), quiet)] if quiet else []),
        ]
