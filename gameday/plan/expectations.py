"""The expectations of a plan: everything that must, or must not, happen once the fault is in.

Bounds called `within` count from the moment the fault was written on the node.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Literal, Self

from pydantic import Field, model_validator

from gameday.documents.fields import (
    ALERT_NAME,
    Bound,
    ConditionStatus,
    ConditionType,
    DocumentModel,
    Duration,
    LabelKey,
    LabelValue,
    Reason,
    conflict,
)
from gameday.plan.canary import ExpectedAllReduce, ExpectedCanary, ExpectedMeasurement
from gameday.plan.control_plane import ExpectedApiCanary, ExpectedContainment, ExpectedWebhook
from gameday.plan.device_taints import ExpectedDeviceTaint
from gameday.plan.job import ExpectedJob
from gameday.plan.probes import ExpectedProbe
from gameday.plan.scheduling import ExpectedPlacement, ExpectedScheduling
from gameday.values.alert_families import MEANINGS, AlertMeaning


class ExpectedAlert(DocumentModel):
    """An alert that must fire for the target."""

    name: str = Field(default="", pattern=ALERT_NAME, max_length=200)
    """Name of the rule, its `alert:`."""
    meaning: AlertMeaning | None = None
    """The fault that the alert means, in place of a name: the shipped rule that shows it is chosen by the fault's layer
    and by the detector that watches (docs/alerts.md, Which rule says it on your cluster)."""
    of: Literal["node", "cluster"] = "node"
    """`node`: the alert names the target. `cluster`: it names no node, such as an alert that the log path is silent."""
    within: Bound
    """Longest time from the fault going in to the alert firing."""
    labels: dict[str, str] = Field(default={})
    """Labels that the alert must carry, in addition to the node's."""
    resolves_within: Duration = timedelta(minutes=5)
    """Longest time from the end of the remediation until the alert no longer fires; for an alert that reads the
    quarantine's taint, from the node's return to service."""

    @property
    def names(self) -> frozenset[str]:
        """Every name that the alert may have: its own, and those of all rules of its meaning."""
        rules = MEANINGS[self.meaning] if self.meaning else ()
        return frozenset({*([self.name] if self.name else []), *(rule.alert for rule in rules)})

    @model_validator(mode="after")
    def _is_named(self) -> Self:
        if not (self.name or self.meaning):
            raise conflict(("name",), f"name the alert's rule, or its meaning: {', '.join(AlertMeaning)}")
        return self

    def about(self, target: str | None) -> str | None:
        """Return the node that the alert names when it fires because of this target; None where it names none."""
        return target if self.of == "node" else None


class TaintEffect(StrEnum):
    """The effect of a taint, as Kubernetes has it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class ExpectedTaint(DocumentModel):
    """A taint that must appear on the target."""

    key: LabelKey
    """Key of the taint, such as `trainy.konduktor.ai/faulty`."""
    value: LabelValue = ""
    """Value of the taint."""
    effect: TaintEffect = TaintEffect.NO_SCHEDULE
    """Effect of the taint."""
    within: Bound
    """Longest time from the fault going in to the taint being on the node."""


class ExpectedCordon(DocumentModel):
    """A cordon: the target must become unschedulable, as by `kubectl cordon`."""

    within: Bound
    """Longest time from the fault going in to the node being unschedulable."""


class ExpectedCondition(DocumentModel):
    """A node condition that must report the fault, and must withdraw the report after the remediation."""

    type: ConditionType
    """Type of the condition, such as `SysLogsXIDError`."""
    status: ConditionStatus
    """Status that reports the fault; conditions differ in whether True or False means trouble."""
    reason: Reason | None = None
    """Reason of the condition, such as `NvidiaXID79Error`; null: any."""
    within: Bound
    """Longest time from the fault going in to the condition having this status."""
    clears_within: Bound | None = timedelta(minutes=5)
    """Longest time from the end of the remediation until the condition has another status; null: a person clears it."""


class ExpectedLabel(DocumentModel):
    """A label that must appear on the target, or change."""

    key: LabelKey
    """Key of the label."""
    value: LabelValue | None = None
    """Value of the label; null: any value that it did not have before."""
    within: Bound
    """Longest time from the fault going in to the label being on the node."""


class ExpectedEvent(DocumentModel):
    """A Kubernetes Event about the target."""

    reason: Reason
    """Reason of the Event, such as `GPUXid79`."""
    type: str | None = Field(default=None, min_length=1, max_length=128)
    """Type of the Event: Normal, Warning, or another that the detector writes; null: any."""
    within: Bound
    """Longest time from the fault going in to the Event's own time stamp."""


class ExpectedAllocatable(DocumentModel):
    """A fall of the GPUs that the kubelet offers, which must be over after the recovery."""

    within: Bound
    """Longest time from the fault going in to `status.allocatable` being lower."""
    returns_within: Bound | None = timedelta(minutes=5)
    """Longest time from the end of the remediation until there are as many as before; null: a person brings them
    back."""


class ExpectedWorkloads(DocumentModel):
    """The purpose of the quarantine: where work may and may not run."""

    running_pods: Literal["kept", "evicted", "any"] = "any"
    """Fate of the GPU pods that ran on the node when the fault went in.

    Judged from the fault going in to the start of the recover step: a
    remediation such as a reboot ends them by itself, and does not break
    `kept`.
    """
    canary_kept_off_for: Duration = timedelta(seconds=3)
    """Time for which a GPU pod that asks for this node must stay unscheduled."""
    resubmitted_within: Duration = timedelta(seconds=60)
    """Longest time until a resubmitted GPU job runs on another node."""


class MisalignedPod(DocumentModel):
    """A pod that asks for more than any single NUMA node of the target can give."""

    gpus: int = Field(default=1, ge=1, le=1024)
    """GPUs that the pod asks for. If fewer are free on the target, no pod is sent."""
    cpus: int = Field(default=1, ge=1, le=65_536)
    """Whole CPUs that the pod asks for; its requests equal its limits (QoS Guaranteed)."""

    @model_validator(mode="after")
    def _require_more_than_one_of_each(self) -> MisalignedPod:
        if self.gpus == self.cpus == 1:
            raise conflict((), "1 GPU and 1 CPU come from one NUMA node: ask for more of one than any NUMA node has")
        return self

    @property
    def size(self) -> str:
        """The pod's size, as people read it."""
        return f"{self.gpus} GPU(s) and {self.cpus} CPU(s)"


class Expectations(DocumentModel):
    """Everything that must, or must not, happen once the fault is in."""

    alerts: tuple[ExpectedAlert, ...] = ()
    """Alerts that must fire for the target."""
    taints: tuple[ExpectedTaint, ...] = ()
    """Taints that must appear on the target."""
    device_taints: tuple[ExpectedDeviceTaint, ...] = ()
    """Taints that must appear on devices of the target, where GPUs are allocated by claims (DRA)."""
    cordoned: ExpectedCordon | None = None
    """The target must become unschedulable: a quarantine without a taint of the detector's own."""
    conditions: tuple[ExpectedCondition, ...] = ()
    """Node conditions that must report the fault."""
    labels: tuple[ExpectedLabel, ...] = ()
    """Labels that must appear on the target."""
    labels_left: tuple[LabelKey, ...] = ()
    """Keys of labels that may differ when the game-day ends, such as a detector's note of when it cordoned the node."""
    events: tuple[ExpectedEvent, ...] = ()
    """Kubernetes Events that must be written about the target."""
    allocatable_falls: ExpectedAllocatable | None = None
    """The kubelet must offer fewer GPUs on the target."""
    canary: ExpectedCanary | None = None
    """Measurement of a job of ours on the target, for faults that slow work down and break nothing."""
    all_reduce: ExpectedAllReduce | None = None
    """Measurement of an all-reduce over the target and other nodes, for faults of the network between them."""
    api_canary: ExpectedApiCanary | None = None
    """Small requests of an ordinary user, sent twice a second, for faults that load the control plane."""
    containment: ExpectedContainment | None = None
    """Limits within which the load on the API servers must stay."""
    webhook: ExpectedWebhook | None = None
    """Writes that the webhook of the fault webhook_unreachable matches, and those that it must not reach."""
    scheduling: ExpectedScheduling | None = None
    """Places and waiting times of the pods that the fault pods_in_steps creates."""
    placement: ExpectedPlacement | None = None
    """Placement of a gang of pods on nodes with fast GPUs, by the labels of `gameday fleet` (docs/fleet.md)."""
    probes: tuple[ExpectedProbe, ...] = Field(default=(), max_length=20)
    """Questions of your own: queries, requests, commands in pods, and jobs (docs/probes.md)."""
    job: ExpectedJob | None = None
    """Recovery of a job that runs on the target (docs/job-recovery.md)."""
    topology_manager_rejects: MisalignedPod | None = None
    """Pod that the target's kubelet must reject at admission with TopologyAffinityError while a `numa` fault is in, as
    topologyManagerPolicy single-numa-node does."""
    stays_schedulable_for: Bound | None = None
    """Makes the plan a negative control: for this long from the fault going in, the target gains no taint
    and is not cordoned. Excludes `taints` and `cordoned`."""
    workloads: ExpectedWorkloads = ExpectedWorkloads()
    """Effects on the GPU work of the node: its running pods, new pods, and resubmitted jobs. A negative control uses
    only `running_pods`."""
    allow_other_alerts: bool = False
    """If true, the fault may set off alerts that the plan does not name: for a target or for no node, begun after the
    fault."""
    forbidden_severities: tuple[str, ...] = ()
    """Values of the label `severity` that no unnamed alert for the target may carry, even if other alerts are
    allowed."""

    @property
    def expects_quarantine(self) -> bool:
        """Return whether the target is to be taken out of service."""
        return bool(self.taints or self.cordoned)

    @property
    def measurements(self) -> tuple[ExpectedMeasurement, ...]:
        """Return what is measured before, during and after the fault, in its order."""
        return tuple(one for one in (self.canary, self.all_reduce) if one is not None)

    @property
    def can_be_broken(self) -> bool:
        """Return whether there is any expectation of the detection chain."""
        return bool(
            self.alerts
            or self.expects_quarantine
            or self.device_taints
            or self.conditions
            or self.labels
            or self.events
            or self.allocatable_falls
            or self.measurements
            or self.api_canary
            or self.containment
            or self.webhook
            or self.scheduling
            or self.placement
            or self.probes
            or self.job
            or self.topology_manager_rejects
            or self.stays_schedulable_for
        )

    def about_gpu_node(self) -> list[str]:
        """Return the keys given here that only a GPU node can fulfil or break."""
        keys = ("taints", "device_taints", "cordoned", "conditions", "labels", "labels_left", "events")
        others = (
            "allocatable_falls",
            "canary",
            "all_reduce",
            "placement",
            "job",
            "topology_manager_rejects",
            "stays_schedulable_for",
            "workloads",
        )
        return [key for key in (*keys, *others) if getattr(self, key) != type(self).model_fields[key].default]

    def about_api_servers(self) -> list[str]:
        """Return the keys given here that only a fault which loads API servers can fulfil or break."""
        return [key for key in ("api_canary", "containment", "webhook") if getattr(self, key) is not None]

    def bounds(self) -> list[tuple[tuple[str | int, ...], timedelta]]:
        """Return every bound that counts from the fault going in, each with its path from these expectations."""
        cordon, allocatable, quiet = self.cordoned, self.allocatable_falls, self.stays_schedulable_for
        return [
            *((("alerts", index, "within"), alert.within) for index, alert in enumerate(self.alerts)),
            *((("taints", index, "within"), taint.within) for index, taint in enumerate(self.taints)),
            *((("device_taints", index, "within"), taint.within) for index, taint in enumerate(self.device_taints)),
            *(
                (("device_taints", index, "pods_leave_within"), taint.pods_leave_within)
                for index, taint in enumerate(self.device_taints)
                if taint.pods_leave_within
            ),
            *((("conditions", index, "within"), condition.within) for index, condition in enumerate(self.conditions)),
            *((("labels", index, "within"), label.within) for index, label in enumerate(self.labels)),
            *((("events", index, "within"), event.within) for index, event in enumerate(self.events)),
            *([(("cordoned", "within"), cordon.within)] if cordon else []),
            *([(("allocatable_falls", "within"), allocatable.within)] if allocatable else []),
            *([(("stays_schedulable_for",), quiet)] if quiet else []),
            *(
                (("probes", index, key), bound)
                for index, probe in enumerate(self.probes)
                for key, bound in (("within", probe.within), ("stays_for", probe.stays_for))
                if bound
            ),
        ]

    @model_validator(mode="after")
    def _check_conflicts(self) -> Expectations:
        if self.expects_quarantine and self.stays_schedulable_for is not None:
            what = "gain the taints listed here" if self.taints else "be cordoned"
            raise conflict(("stays_schedulable_for",), f"a node cannot {what} and also stay schedulable")
        if self.forbidden_severities and not self.allow_other_alerts:
            raise conflict(
                ("forbidden_severities",),
                "while allow_other_alerts is false, every unnamed alert breaks the run already; "
                "set allow_other_alerts: true to forbid only these severities",
            )
        names = [probe.name for probe in self.probes]
        if twice := next((index for index, name in enumerate(names) if name in names[:index]), None):
            raise conflict(("probes", twice, "name"), "another probe of this plan has this name")
        return self
