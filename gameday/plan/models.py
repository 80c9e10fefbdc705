"""A plan's models: frozen, closed (unknown keys are refused) and free of any client.

A fault's parameters are a model of its own, defined beside the fault; a plan
is validated against whichever parameter models the caller knows (see
`plan.load`), so that a new fault needs no edit here.

Combinations that can never hold are refused here with a `conflict` error that
names the field to change in its context (`at`), so that the loader can point
at the line.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    Field,
    SerializeAsAny,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from gameday.documents.fields import (
    ALERT_NAME,
    PLAN_NAME,
    Bound,
    ConditionStatus,
    ConditionType,
    DocumentModel,
    Duration,
    LabelKey,
    LabelValue,
    NodeName,
    Reason,
    conflict,
    format_duration,
)
from gameday.plan.canary import ExpectedCanary
from gameday.plan.limits import Guardrails
from gameday.plan.purpose import Purpose


class FaultParameters(DocumentModel):
    """Base of every fault's parameters; `type` names the fault.

    A subclass narrows `type` to one Literal and adds its own bounded fields.
    """

    dangerous: ClassVar[str] = ""
    """Why the fault may cost more than a plan says; one with a reason needs the plan's and the cluster's allowance."""

    needs_canary: ClassVar[bool] = False
    """Whether the fault is one of the canary job alone, so that nothing shows without `expect.canary`."""

    type: str
    hold: Duration = timedelta(seconds=60)
    """How long the fault stays in when nobody takes it out: the agent's own deadline."""

    def dangers(self) -> dict[str, str]:
        """Why, by the type of every dangerous fault in it; a fault made of others names those."""
        return {self.type: self.dangerous} if self.dangerous else {}


def _resolve_fault(value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> FaultParameters:
    """Hold it against the model of its `type`, among those that the context's `faults` knows."""
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


AnyFault = Annotated[SerializeAsAny[FaultParameters], WrapValidator(_resolve_fault)]
"""A fault of whatever type the context knows."""


class Targets(DocumentModel):
    """Which nodes, chosen once before anything changes, by a seeded rule, among nodes that opted in."""

    nodes: int = Field(default=1, ge=1, le=100)
    """How many nodes."""
    names: tuple[NodeName, ...] = ()
    """Only these nodes; empty means any that match."""
    selector: dict[LabelKey, LabelValue] = Field(default={})
    """Labels a node must carry, beside the opt-in label of the cluster profile."""
    seed: int = 1
    """Two runs with one seed over the same candidates choose the same nodes."""


class Baseline(DocumentModel):
    """The steady state, looked at before anything is changed."""

    window: Duration = timedelta(seconds=30)
    """How far back the frames of the steady state reach."""
    log_path_within: Duration = timedelta(seconds=30)
    """A harmless marker line must be found in the log store within this."""


class ExpectedAlert(DocumentModel):
    """One alert that must fire for the target."""

    name: str = Field(pattern=ALERT_NAME, max_length=200)
    """The rule's `alert:` name."""
    of: Literal["node", "cluster"] = "node"
    """Whom it speaks of. `cluster`: an alert that names no node, such as one that the log path is silent."""
    within: Bound
    """From the fault going in to the alert firing for the target node."""
    labels: dict[str, str] = Field(default={})
    """Labels the alert must carry, beside the node's."""
    resolves_within: Duration = timedelta(minutes=5)
    """From the end of remediation to the alert no longer firing."""

    def about(self, target: str | None) -> str | None:
        """The node that the alert names when it fires because of this target; None: it names none."""
        return target if self.of == "node" else None


class TaintEffect(StrEnum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class ExpectedTaint(DocumentModel):
    """One taint that must appear on the target."""

    key: LabelKey
    """The taint's key, e.g. `trainy.konduktor.ai/faulty`."""
    value: LabelValue = ""
    effect: TaintEffect = TaintEffect.NO_SCHEDULE
    within: Bound
    """From the fault going in to the taint being on the node."""


class ExpectedCordon(DocumentModel):
    """The target must be made unschedulable (`kubectl cordon`)."""

    within: Bound
    """From the fault going in to the node being unschedulable."""


class ExpectedCondition(DocumentModel):
    """One node condition that must say that something is wrong, and must take it back."""

    type: ConditionType
    """The condition's type, e.g. `SysLogsXIDError`."""
    status: ConditionStatus
    """What it must become; which word means trouble is the condition's own convention."""
    reason: Reason | None = None
    """Its reason, e.g. `NvidiaXID79Error`; None: any."""
    within: Bound
    """From the fault going in to the condition saying so."""
    clears_within: Bound | None = timedelta(minutes=5)
    """From the end of remediation to the condition saying so no longer; None: it stays until a person clears it."""


class ExpectedLabel(DocumentModel):
    """One label that must appear on the target, or change."""

    key: LabelKey
    value: LabelValue | None = None
    """None: any value that it did not have before."""
    within: Bound
    """From the fault going in to the label being there."""


class ExpectedEvent(DocumentModel):
    """One Kubernetes Event about the target."""

    reason: Reason
    """The Event's reason, e.g. `GPUXid79`."""
    type: str | None = Field(default=None, min_length=1, max_length=128)
    """Normal, Warning, or what else the detector writes there; None: any."""
    within: Bound
    """From the fault going in to the Event's own time stamp."""


class ExpectedAllocatable(DocumentModel):
    """The kubelet must offer fewer GPUs, and after recovery as many as before."""

    within: Bound
    """From the fault going in to `status.allocatable` being lower."""
    returns_within: Bound | None = timedelta(minutes=5)
    """From the end of remediation to as many as before; None: a person must bring them back."""


class ExpectedWorkloads(DocumentModel):
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


class MisalignedPod(DocumentModel):
    """What a pod asks for that no single NUMA node of the target can give."""

    gpus: int = Field(default=1, ge=1, le=1024)
    """Pods that hold GPUs keep them: where fewer are free on the target, nothing is sent."""
    cpus: int = Field(default=1, ge=1, le=65_536)
    """Whole CPUs, requests and limits alike (QoS Guaranteed)."""

    @model_validator(mode="after")
    def _is_more_than_any_node_serves(self) -> MisalignedPod:
        if self.gpus == self.cpus == 1:
            raise conflict((), "1 GPU and 1 CPU come from one NUMA node: ask for more of one than any NUMA node has")
        return self

    @property
    def size(self) -> str:
        return f"{self.gpus} GPU(s) and {self.cpus} CPU(s)"


class Expectations(DocumentModel):
    """What must, and what must not, happen once the fault is in."""

    alerts: tuple[ExpectedAlert, ...] = ()
    """Alerts that must fire for the target."""
    taints: tuple[ExpectedTaint, ...] = ()
    """Taints that must appear on the target."""
    cordoned: ExpectedCordon | None = None
    """The target must be made unschedulable: quarantine without a taint of the detector's own."""
    conditions: tuple[ExpectedCondition, ...] = ()
    """Node conditions that must report the fault."""
    labels: tuple[ExpectedLabel, ...] = ()
    """Labels that must appear on the target."""
    labels_left: tuple[LabelKey, ...] = ()
    """Keys of labels that may differ when the game-day ends, as a detector's note of when it cordoned the node."""
    events: tuple[ExpectedEvent, ...] = ()
    """Kubernetes Events that must be written about the target."""
    allocatable_falls: ExpectedAllocatable | None = None
    """The kubelet must offer fewer GPUs on the target."""
    canary: ExpectedCanary | None = None
    """What a job of ours on the target must measure: for faults that slow work down and break nothing."""
    topology_manager_rejects: MisalignedPod | None = None
    """While a `numa` fault is in, the target's kubelet must reject this pod at admission with TopologyAffinityError,
    as topologyManagerPolicy single-numa-node does."""
    stays_schedulable_for: Bound | None = None
    """Makes the plan a negative control: for this long from the fault going in, the target gains no taint
    and is not cordoned. Excludes `taints` and `cordoned`."""
    workloads: ExpectedWorkloads = ExpectedWorkloads()
    """Where work may run while the target is quarantined. A negative control only uses `running_pods`."""
    allow_other_alerts: bool = False
    """Whether the fault may set off alerts that nobody named: for a target or for no node, begun after the fault."""
    forbidden_severities: tuple[str, ...] = ()
    """`severity` labels that no unnamed alert for the target may carry, even where other alerts are allowed."""

    @property
    def quarantine(self) -> bool:
        """Whether the target is to be taken out of service."""
        return bool(self.taints or self.cordoned)

    @property
    def can_be_broken(self) -> bool:
        """Whether anything is expected of the chain at all."""
        return bool(
            self.alerts
            or self.quarantine
            or self.conditions
            or self.labels
            or self.events
            or self.allocatable_falls
            or self.canary
            or self.topology_manager_rejects
            or self.stays_schedulable_for
        )

    @model_validator(mode="after")
    def _fits_together(self) -> Expectations:
        if self.quarantine and self.stays_schedulable_for is not None:
            what = "gain the taints listed here" if self.taints else "be cordoned"
            raise conflict(("stays_schedulable_for",), f"a node cannot {what} and stay schedulable too")
        if self.forbidden_severities and not self.allow_other_alerts:
            raise conflict(
                ("forbidden_severities",),
                "while allow_other_alerts is false every unnamed alert breaks the run already; "
                "set allow_other_alerts: true to forbid only these severities",
            )
        return self


NO_REMEDIATION = "none"


def _is_known_remediation(name: str, info: ValidationInfo) -> str:
    """Refuse a name that is not among the context's `remediations`; without those any name is taken."""
    known: Collection[str] | None = (info.context or {}).get("remediations")
    if known is not None and name not in known:
        raise PydanticCustomError(
            "remediation", "unknown remediation; known: {known}", {"known": ", ".join(sorted(known)) or "none"}
        )
    return name


RemediationName = Annotated[str, Field(pattern=PLAN_NAME, max_length=63), AfterValidator(_is_known_remediation)]


class Recovery(DocumentModel):
    """How the node is repaired once the fault is out."""

    remediation: RemediationName = NO_REMEDIATION
    """The repair, by its name; `none` leaves the node as it is."""
    within: Duration = timedelta(minutes=10)
    """From the start of the step to the node Ready again."""
    fault_during: AnyFault | None = None
    """A second fault, put in when remediation starts and taken out when it has ended: does the repair withstand it?"""

    @property
    def repairs_node(self) -> bool:
        """The plan names a remediation."""
        return self.remediation != NO_REMEDIATION

    @model_validator(mode="after")
    def _there_is_something_to_disturb(self) -> Recovery:
        if self.fault_during and not self.repairs_node:
            raise conflict(
                ("fault_during",),
                "there is no remediation to disturb: say which, or put both faults into one of type compound",
            )
        return self


class QaFloors(DocumentModel):
    """What a node must show before it takes work again.

    None leaves a floor out: `gpus`, `power_limit_w`, `pcie_generation` and `pcie_width` are then held to what the node
    and its GPUs say of themselves, all others are not checked.
    """

    gpus: int | None = Field(default=None, ge=1, le=64)
    """GPUs NVML must count; None means nvidia.com/gpu.count, or what the node offered before the fault."""
    gemm_tflops: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """BF16 dense GEMM rate, TFLOP/s per GPU."""
    memory_bandwidth_gbs: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Device-to-device copy rate, GB/s per GPU."""
    pcie_generation: int | None = Field(default=None, ge=1, le=7)
    """PCIe generation of each GPU's link; None means the GPU's own maximum."""
    pcie_width: int | None = Field(default=None, ge=1, le=32)
    """Lanes of each GPU's link; None means the GPU's own maximum."""
    nvlinks: int | None = Field(default=None, ge=0, le=72)
    """NVLinks that must be active per GPU."""
    power_limit_w: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Power limit that must be in force per GPU, watts; None means the board's default."""
    persistence: bool | None = True
    """Persistence mode each GPU must be in."""
    ecc: bool | None = True
    """ECC mode each GPU must be in, now and after its next reset."""
    memory_free_mib: int | None = Field(default=None, gt=0)
    """GPU memory that must be free beside what runs there, MiB per GPU."""
    temperature_max_c: float | None = Field(default=93, gt=0, allow_inf_nan=False)
    """GPU temperature ceiling, degrees Celsius (93: where Azure's agent warns, docs/sources.md, Pass criteria)."""

    @property
    def need_load(self) -> bool:
        """Whether a floor can only be judged by loading the GPUs. Without one QA leaves running work alone."""
        return self.gemm_tflops is not None or self.memory_bandwidth_gbs is not None


class Qa(DocumentModel):
    """The proof that the node is good, before it takes work again."""

    floors: QaFloors = QaFloors()
    within: Duration = timedelta(minutes=10)
    """From the start of the step to the last check's result."""


class Approval(DocumentModel):
    """A person's yes, after the baseline and before anything is broken."""

    required: bool = False
    """Whether somebody must say yes: in the Prefect UI, or with `gameday run --approved-by`."""
    within: Bound = timedelta(minutes=15)
    """From the question to the answer; it counts towards `guardrails.max_duration`, and no answer is a refusal."""


class Plan(DocumentModel):
    """One game-day."""

    apiVersion: Literal["gameday/v1"]
    name: str = Field(pattern=PLAN_NAME, max_length=63)
    """Also the file's name: lower-case letters, digits and `-`."""
    title: str = Field(min_length=1, max_length=200)
    """One line for lists and the report's head."""
    hypothesis: str = Field(min_length=1, max_length=4000)
    """What the cluster's owners believe, in a sentence the report can hold against what was measured."""
    purpose: Purpose = Purpose()
    """Why the game-day is held, under which change, and whom to call."""
    detector: str = Field(default="gameday", min_length=1, max_length=1024)
    """The detector profile whose expectations these are: a shipped one's name (`gameday detectors`), one in the
    cluster profile's `detector_profiles`, or the path of a file. A plan that names one may leave out what it says."""
    fault: AnyFault
    """What is broken, and how; `type` names it."""
    targets: Targets = Targets()
    baseline: Baseline = Baseline()
    expect: Expectations
    recover: Recovery = Recovery()
    qa: Qa = Qa()
    guardrails: Guardrails = Guardrails()
    approval: Approval = Approval()

    def dangers(self) -> dict[str, str]:
        """Why, by the type of every dangerous fault that this plan puts in."""
        during = self.recover.fault_during
        return self.fault.dangers() | (during.dangers() if during else {})

    @property
    def names_detector(self) -> bool:
        return "detector" in self.model_fields_set

    @model_validator(mode="after")
    def _fits_together(self) -> Plan:
        longest = self.guardrails.max_duration
        if not (self.expect.can_be_broken or self.names_detector):
            raise conflict(
                ("expect",),
                "a plan that expects nothing can prove nothing: name alerts, taints, conditions, events or "
                "stays_schedulable_for here, or a detector whose profile says what to expect",
            )
        most = self.guardrails.max_nodes
        if most is not None and self.targets.nodes > most:
            raise conflict(
                ("targets", "nodes"),
                f"targets.nodes ({self.targets.nodes}) is more than guardrails.max_nodes ({most})",
            )
        if self.targets.names and len(self.targets.names) < self.targets.nodes:
            raise conflict(
                ("targets", "names"),
                f"targets.nodes is {self.targets.nodes}, but targets.names lists {len(self.targets.names)}",
            )
        during = self.recover.fault_during
        for field, dangers in (("fault", self.fault.dangers()), ("recover", during.dangers() if during else {})):
            for name, why in dangers.items():
                if name not in self.guardrails.allow_dangerous:
                    raise conflict(
                        ("fault", "type") if field == "fault" else ("recover", "fault_during", "type"),
                        f"{name} is dangerous ({why}): name it in guardrails.allow_dangerous, here and in the "
                        "cluster profile's allow_dangerous, if that is meant",
                    )
        for at, bound in self._bounds():
            if bound > longest:
                raise conflict(
                    at,
                    f"this bound ({format_duration(bound)}) is longer than guardrails.max_duration "
                    f"({format_duration(longest)}), which would abort the run first",
                )
        return self

    @model_validator(mode="after")
    def _expectations_suit_the_fault(self) -> Plan:
        if self.fault.needs_canary and self.expect.canary is None:
            raise conflict(
                ("expect",), f"{self.fault.type} shows in the canary job alone: say in expect.canary what it measures"
            )
        if self.expect.topology_manager_rejects and self.fault.type != "numa":
            raise conflict(
                ("expect", "topology_manager_rejects"),
                "only the fault numa makes sure that the target has more than one NUMA node",
            )
        return self

    @property
    def longest_bound(self) -> timedelta:
        """From the fault going in to the last instant at which one of the expectations may still come true."""
        return max((bound for place, bound in self._bounds() if place[0] == "expect"), default=timedelta())

    def _bounds(self) -> list[tuple[tuple[str | int, ...], timedelta]]:
        expect = self.expect
        quiet = expect.stays_schedulable_for
        return [
            *((("expect", "alerts", i, "within"), alert.within) for i, alert in enumerate(expect.alerts)),
            *((("expect", "taints", i, "within"), taint.within) for i, taint in enumerate(expect.taints)),
            *((("expect", "conditions", i, "within"), seen.within) for i, seen in enumerate(expect.conditions)),
            *((("expect", "labels", i, "within"), seen.within) for i, seen in enumerate(expect.labels)),
            *((("expect", "events", i, "within"), seen.within) for i, seen in enumerate(expect.events)),
            *([(("expect", "cordoned", "within"), expect.cordoned.within)] if expect.cordoned else []),
            *(
                [(("expect", "allocatable_falls", "within"), expect.allocatable_falls.within)]
                if expect.allocatable_falls
                else []
            ),
            *([(("expect", "stays_schedulable_for"), quiet)] if quiet else []),
            *([(("approval", "within"), self.approval.within)] if self.approval.required else []),
        ]
