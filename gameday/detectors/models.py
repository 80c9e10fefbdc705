"""The models of a detector profile: frozen and closed, like a plan's.

A profile is a list of rules, read from the top. The first one that fits a fault says what the detector does about it,
or why it cannot see it. If no rule fits, the profile says nothing about the fault, which is not the same.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator

from gameday.documents.fields import PLAN_NAME, Duration, LabelKey, conflict
from gameday.expect.allocatable_falls import ExpectedAllocatable
from gameday.expect.conditions import ExpectedCondition
from gameday.expect.cordoned import ExpectedCordon
from gameday.expect.events import ExpectedEvent
from gameday.expect.labels import ExpectedLabel
from gameday.expect.taints import ExpectedTaint
from gameday.faults.base import Layer
from gameday.plan.repair_chain import RepairChain
from gameday.values.results import RepairKind

Fact = StrictBool | StrictInt | StrictFloat | StrictStr | None
"""A fact about a fault: a parameter's value, or something that follows from it (`gameday.detectors.facts`)."""


PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
ReasonTemplate = Annotated[str, Field(pattern=r"^([A-Za-z]|\{[a-z_]+\})([A-Za-z0-9_,:]|\{[a-z_]+\})*$", max_length=128)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class _Timed(_Model):
    """An expectation, and the detector's usual latency."""

    typically: Duration | None = None
    """The usual latency, as measured or as the detector's own periods give it; None: nobody published it."""

    @model_validator(mode="after")
    def _typical_is_within(self) -> Self:
        within: timedelta = getattr(self, "within")  # noqa: B009 - of the expectation this is mixed into
        if self.typically is not None and self.typically > within:
            raise conflict(("typically",), "the typical latency is longer than the bound, `within`")
        return self


class Condition(_Timed, ExpectedCondition):
    """A node condition the detector sets."""

    reason: ReasonTemplate | None = None
    """Reason of the condition; it may hold a fact of the fault in braces, like `NvidiaXID{value}Error`."""


class Taint(_Timed, ExpectedTaint):
    """A taint the detector puts on the node."""


class Label(_Timed, ExpectedLabel):
    """A label the detector puts on the node."""


class Event(_Timed, ExpectedEvent):
    """A Kubernetes Event the detector writes about the node."""

    reason: ReasonTemplate
    """Reason of the Event; it may hold a fact of the fault in braces, like `GPUXid{xid}`."""


class Cordon(_Timed, ExpectedCordon):
    """The detector makes the node unschedulable."""


class Allocatable(_Timed, ExpectedAllocatable):
    """The detector takes GPUs out of what the kubelet offers."""


class Harm(_Model):
    """Harm that a fault does to the detector itself."""

    what: str = Field(min_length=1, max_length=1000)
    """The harm, with its cause."""
    fix: str = Field(min_length=1, max_length=1000)
    """The step to take before a game-day with this fault."""


class Ending(StrEnum):
    """An event after which a detector takes back what it set."""

    GPU_RESET = "gpu-reset"
    """The game-day agent's reset of the GPU, in the kernel log."""
    REBOOT = "reboot"
    """A new boot id."""
    FAULT_OUT = "fault-out"
    """The end of the fault: its source no longer shows it."""


class Evidence(StrEnum):
    """The basis of a rule: what somebody ran, or what somebody read."""

    SEEN = "seen"
    """The real program answered at least one fault of the rule so, in a rehearsal or a lab of ours."""
    READ = "read"
    """The program's code or documents say so; nobody here has run it."""


class CancellingAct(StrEnum):
    """An act on a node in repair that the stack reads as an order to stop."""

    UNCORDON = "uncordon"
    """Making the node schedulable again."""
    TAINT_REMOVED = "taint-removed"
    """Taking the stack's own taint off."""


class Repairs(_Model):
    """The stack's own repair of a node: the hops, the signs that show them, and who does them."""

    by: str = Field(min_length=1, max_length=128)
    """Name of the program that repairs."""
    configuration: str = Field(min_length=1, max_length=2000)
    """The version and the settings for which this holds; repair is often switched off as shipped."""
    hops: RepairChain
    """Hops with their bounds and signs. They complete a plan's `recover.hops` if it has `by: cluster`."""
    cancelled_by: tuple[CancellingAct, ...] = ()
    """Acts that end the stack's repair. A game-day that repairs the node itself commits them."""
    source: str = Field(min_length=1, max_length=500)
    """The document that supports this part, like `docs/sources.md, Repair by NVSentinel`."""

    @model_validator(mode="after")
    def _has_a_hop(self) -> Repairs:
        if not self.hops.expected():
            raise conflict(("hops",), "name the hops that the stack takes, or write `repairs_nothing` with the reason")
        return self


class Rule(_Model):
    """The detector's answer to some faults."""

    faults: tuple[str, ...] = ()
    """Types of the faults that the rule is for, as a plan's `fault.type` (docs/faults.md)."""
    layers: tuple[Layer, ...] = ()
    """Layers of faults that the rule is for, in addition to `faults`: every fault that enters at one of these."""
    when: dict[str, tuple[Fact, ...]] = {}
    """Restriction to faults that have one of the listed values for each of these: a parameter of the fault, or one of
    the facts of docs/detectors.md (`nvidia_action`, `decision`, `severity`)."""
    cannot_see: str = Field(default="", max_length=1000)
    """The reason why the detector does not see these faults; excludes every key for something it would do."""
    conditions: tuple[Condition, ...] = ()
    taints: tuple[Taint, ...] = ()
    labels: tuple[Label, ...] = ()
    labels_left: tuple[LabelKey, ...] = ()
    """Keys of labels that the detector leaves or changes for good, to note its own actions."""
    events: tuple[Event, ...] = ()
    cordoned: Cordon | None = None
    allocatable_falls: Allocatable | None = None
    ends_with: tuple[Ending, ...] = ()
    """Events upon which the detector takes back conditions, taints, labels and cordon by itself; none: it never
    does."""
    repaired_by: tuple[RepairKind, ...] | None = None
    """Kinds of repair that the stack begins for these faults; an empty list: it leaves the node to a person, and out of
    service; null: any kind."""
    harm: Harm | None = None
    """The fault's harm to the detector; a warning before every run if this detector watches."""
    note: str = Field(default="", max_length=1000)
    """Further facts for the reader, such as an action that the detector requests, or a part that it misses."""
    source: str = Field(min_length=1, max_length=500)
    """The document that supports the rule, like `docs/sources.md, NVSentinel`."""
    evidence: Evidence | None = None
    """`seen`, if the real program answered so in a rehearsal or a lab here; `read`, if its code or documents say
    so and nobody has run it; null: not stated."""
    seen_on: date | None = None
    """Day on which it was last seen; with `evidence: seen` only."""

    @property
    def quarantines(self) -> bool:
        return bool(self.taints or self.cordoned)

    @property
    def acts(self) -> bool:
        """True if any of its answer shows in the cluster."""
        return bool(self.quarantines or self.conditions or self.labels or self.events or self.allocatable_falls)

    @model_validator(mode="after")
    def _sees_or_does_not(self) -> Rule:
        if not (self.faults or self.layers):
            raise conflict((), "a rule says of which `faults` or `layers` it speaks")
        if self.cannot_see and self.acts:
            raise conflict(("cannot_see",), "a detector that cannot see a fault does nothing about it: take one out")
        if self.when and self.layers:
            raise conflict(("when",), "`when` asks about a fault type's own parameters: name `faults`, not `layers`")
        if (self.evidence is Evidence.SEEN) != (self.seen_on is not None):
            raise conflict(("seen_on",), "write `evidence: seen` and the day together, or neither")
        return self


class Mark(_Model):
    """A part of an installed detector, found by a workload or on the node; of the given keys all must fit."""

    image: str = Field(default="", max_length=200)
    """End of an image's name without tag, in whole parts of its path, like `nvsentinel/fault-quarantine`."""
    workload: str = Field(default="", max_length=253)
    """Beginning of the name of a DaemonSet or Deployment."""
    says: str = Field(default="", max_length=500)
    """Text in the command, the arguments or the environment of one of its containers, in any case."""
    config: str = Field(default="", max_length=500)
    """Text that a ConfigMap of the workload has to hold: without it the detector is there and sees nothing."""
    on_node: bool = False
    """True for a part that sees only the faults of the node with its pod."""
    node_label: str = Field(default="", max_length=317)
    """Key of a label of the node, for what runs outside the cluster."""
    node_condition: str = Field(default="", max_length=316)
    """Type of a condition of the node, for what runs beside its kubelet."""


class Recognition(_Model):
    """The parts by which an installed detector is recognised."""

    marks: tuple[Mark, ...] = Field(min_length=1)
    """The first part shows that it is installed; it sees nothing while one of the others is missing."""
    unless: str = Field(default="", max_length=63)
    """Name of the profile of the same program in another configuration, which then speaks for it."""


class DetectorProfile(_Model):
    """A detector's answers to each fault, as it is configured here."""

    apiVersion: Literal["gameday/v1"]
    kind: Literal["DetectorProfile"]
    name: Annotated[str, Field(pattern=PLAN_NAME, max_length=63)]
    """Name of the profile and of its file: lower-case letters, digits and `-`."""
    title: str = Field(min_length=1, max_length=200)
    """The profile's line in lists and reports."""
    configuration: str = Field(min_length=1, max_length=2000)
    """The version and the settings for which this holds."""
    reads: tuple[Literal["kernel log", "DCGM", "NVML", "node status"], ...] = Field(min_length=1)
    """Sources that the detector reads."""
    quiet_for: Duration = timedelta(seconds=30)
    """Time to watch before the detector's silence means something, for a fault that must not quarantine the node."""
    source: str = Field(min_length=1, max_length=500)
    recognize: Recognition | None = None
    """The signs that it is installed, for `gameday prove`; null: it has to be named there."""
    rules: tuple[Rule, ...] = Field(min_length=1)
    """The rules in order; the first one that fits a fault applies to it."""
    repairs: Repairs | None = None
    """The stack's own repair of the node; null: nobody has described one."""
    repairs_nothing: str = Field(default="", max_length=1000)
    """The reason why the stack never repairs a node; excludes `repairs`."""

    @model_validator(mode="after")
    def _repairs_or_does_not(self) -> DetectorProfile:
        if self.repairs and self.repairs_nothing:
            raise conflict(("repairs_nothing",), "a stack that repairs nothing has no `repairs`: take one out")
        return self

    @property
    def ever_quarantines(self) -> bool:
        return any(rule.quarantines for rule in self.rules)
