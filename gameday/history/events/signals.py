"""The signals about targets: alerts, taints, devices, conditions, Kubernetes Events, kernel lines, workloads."""

from __future__ import annotations

import json
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from gameday.history.events.model import EventModel
from gameday.values.dated import Dated
from gameday.values.devices import HeldDevice
from gameday.values.nodes import NodeSnapshot, Taint
from gameday.values.results import Hop


class NodeSeen(EventModel):
    kind: Literal["node_seen"] = "node_seen"
    phase: Literal["before", "during", "after"]
    snapshot: NodeSnapshot


class HopSeen(EventModel):
    """`at` is when the hop happened by its source's clock, not when we learnt of it."""

    kind: Literal["hop_seen"] = "hop_seen"
    hop: Hop
    node: str
    at: AwareDatetime
    source: str


class DatedEvent(EventModel):
    """A signal that came or went; `at` is the latest time at which it can have happened."""

    at: AwareDatetime
    dated: Dated | None = Field(default=None, description="its own time and the run's looks; None: only the sight")


class AlertSeen(DatedEvent):
    """An alert's life as Prometheus or Alertmanager reports it; repeated when its state changes."""

    kind: Literal["alert_seen"] = "alert_seen"
    alert: str
    state: Literal["pending", "firing", "resolved"]
    labels: dict[str, str]
    annotations: dict[str, str] = Field(default={})
    node: str | None
    expected: bool
    since: AwareDatetime | None = Field(
        default=None, description="when its condition began to hold (Prometheus' activeAt); None if nobody said"
    )
    at_baseline: bool = Field(default=False, description="already there before the fault; never blamed on it")
    background: bool = Field(default=False, description="one that the cluster profile calls background")
    silenced: bool = False
    inhibited: bool = Field(default=False, description="muted by another alert: held, and nobody is notified")
    receivers: tuple[str, ...] = ()

    @property
    def label_set(self) -> str:
        """The labels that identify it, including its name: a rule by GPU and code fires for a node several times."""
        return json.dumps(self.labels, sort_keys=True)


class TaintSeen(DatedEvent):
    kind: Literal["taint_seen"] = "taint_seen"
    node: str
    taint: Taint
    present: bool
    manager: str | None = Field(description="managedFields manager that owns it; None if the server names none")
    at_baseline: bool = Field(default=False, description="of an incident: it stood when the window began")


class DeviceTaintSeen(DatedEvent):
    """A taint of a target's device, in a ResourceSlice, that came or went."""

    kind: Literal["device_taint_seen"] = "device_taint_seen"
    node: str
    driver: str
    device: str
    taint: Taint
    present: bool


class DevicesHeld(EventModel):
    """The devices of a target that ResourceClaims hold for pods.

    `before` the fault; when the pods that had to leave have `left`; and `during` the fault, after the quiet time.
    """

    kind: Literal["devices_held"] = "devices_held"
    node: str
    phase: Literal["before", "left", "during"]
    held: tuple[HeldDevice, ...]
    at: AwareDatetime


class ConditionSeen(DatedEvent):
    """A condition of a target that came, changed or went."""

    kind: Literal["condition_seen"] = "condition_seen"
    node: str
    condition: str
    status: str | None = Field(description="True, False or Unknown; None if the condition is no longer there")
    reason: str = ""
    message: str = ""


class LabelSeen(DatedEvent):
    """A label of a target that came, changed or went."""

    kind: Literal["label_seen"] = "label_seen"
    node: str
    label: str
    value: str | None = Field(description="None if the label is no longer there")


class AllocatableSeen(EventModel):
    """The number of GPUs that the kubelet offers on a target, at each change; `at` is when the watch showed it."""

    kind: Literal["allocatable_seen"] = "allocatable_seen"
    node: str
    gpus: int | None = Field(description="allocatable nvidia.com/gpu; None if the node reports none")
    before: int | None
    at: AwareDatetime


class CordonSeen(DatedEvent):
    """A target that was made unschedulable, or schedulable again."""

    kind: Literal["cordon_seen"] = "cordon_seen"
    node: str
    cordoned: bool
    manager: str | None = Field(default=None, description="managedFields manager that wrote it; None if none is named")


class LeftToOwner(EventModel):
    """A cordon or a taint that somebody else put on a target during the run; it is theirs to lift."""

    kind: Literal["left_to_owner"] = "left_to_owner"
    node: str
    what: str = Field(description="`scheduling` for the cordon, `taint KEY` for a taint")
    by: str = Field(description="managedFields manager; empty if none is named")
    at: AwareDatetime


class DetectorConsulted(EventModel):
    """The profile of the detector that the plan names, and which of the plan's expectations are the profile's."""

    kind: Literal["detector_consulted"] = "detector_consulted"
    detector: str
    title: str
    source: str = Field(description="the source of the profile's word on this fault")
    sees: bool | None = Field(description="None if the profile says nothing about this fault")
    why: str = Field(default="", description="why it cannot see the fault, or what else is to be known")
    filled: tuple[str, ...] = Field(description="keys of the plan's `expect` that come from the profile")


class AlertChosen(EventModel):
    """The rule chosen for an alert that the plan expects by its meaning."""

    kind: Literal["alert_chosen"] = "alert_chosen"
    meaning: str
    alert: str
    source: str = Field(description="the exporter of the rule's series, and what it needs")


class KubernetesEventSeen(DatedEvent):
    """A Kubernetes Event about a target node."""

    kind: Literal["kubernetes_event_seen"] = "kubernetes_event_seen"
    node: str
    reason: str
    type: str = Field(description="Normal, Warning, or what else the writer put there")
    source: str = Field(description="reporting component")
    message: str
    count: int = 1


class SignSeen(DatedEvent):
    """A sign of an expectation's own, on a pod of a target, that came, changed or went."""

    kind: Literal["sign_seen"] = "sign_seen"
    node: str
    signal: str = Field(description="the check of the expected signal that reads it")
    place: str = Field(description="what has the sign")
    value: str | None = Field(description="None if the sign is no longer there")


class SignalUnwatched(EventModel):
    """A signal that the run could not follow: it is unknown, not absent."""

    kind: Literal["signal_unwatched"] = "signal_unwatched"
    node: str
    signal: Literal["events", "custom resources", "devices"]
    why: str


class PrometheusFellBehind(EventModel):
    """A time in which Prometheus may have missed alerts: it scraped or evaluated too late, or could not be asked."""

    kind: Literal["prometheus_fell_behind"] = "prometheus_fell_behind"
    since: AwareDatetime
    until: AwareDatetime
    why: str
    hint: str


class CanaryMeasured(EventModel):
    """A canary job's measurement on a target: the signal of faults that only slow work down."""

    kind: Literal["canary_measured"] = "canary_measured"
    node: str
    measure: str = Field(description="what was measured, e.g. 'all-reduce bus bandwidth'")
    phase: Literal["before", "during", "after"]
    value: float | None = Field(description="None if it could not be measured")
    unit: str
    bound: str = Field(default="", description="as shown to people; empty if there is none")
    ok: bool | None
    detail: str = ""
    gpus: int = Field(default=0, description="how many GPUs the canary held")
    peer: str = Field(default="", description="the host that answered, if one was asked")
    peers: tuple[str, ...] = Field(default=(), description="the other nodes of an all-reduce over nodes")
    latency_ms: float | None = Field(default=None, description="of an all-reduce over nodes, of one element each")
    bytes: int = Field(default=0, description="of a round of an all-reduce over nodes")
    at: AwareDatetime


class KernelLineSeen(EventModel):
    """A line of a real incident's kernel log about a GPU or an NVSwitch, in a post-mortem; nothing was injected."""

    kind: Literal["kernel_line_seen"] = "kernel_line_seen"
    node: str
    family: str = Field(description="xid, sxid, gpu-lost, peermem, driver or gpu-reset")
    code: int | None = Field(description="None if the line names none")
    pci: str | None = Field(description="of the GPU or NVSwitch; None if the line names none")
    decision: str = Field(description="what NVIDIA's catalogue asks for: quarantine, workload, event or ignore")
    reason: str
    line: str
    at: AwareDatetime = Field(description="as the log store dates the line")


class ProbeAnswered(EventModel):
    """An answer of a probe of the plan; `at` is when it came, by the run's clock."""

    kind: Literal["probe_answered"] = "probe_answered"
    probe: str
    asks: Literal["promql", "http", "exec", "job"]
    holds: bool | None = Field(description="None if the probe could not be read")
    value: float | None = Field(default=None, description="the query's value that decided")
    detail: str
    asked_at: AwareDatetime
    at: AwareDatetime


class JobStepSeen(EventModel):
    """A container of a job and the steps it has printed so far; the times are the log's own, by its node's clock."""

    kind: Literal["job_step_seen"] = "job_step_seen"
    pod: str
    uid: str
    restarts: int
    node: str
    first_step: int
    first_at: AwareDatetime
    last_step: int
    last_at: AwareDatetime
    ended: bool = Field(default=False, description="the container runs no more, or its pod is gone or ending")


class WorkloadSeen(EventModel):
    """A pod's proof about scheduling.

    `canary` must not land on the tainted node; `resubmitted` must land on a healthy one; `running` is a pod that was
    there before; `return` must land on the node after QA; `misaligned` asks for more than one NUMA node has, and the
    kubelet must reject it.
    """

    kind: Literal["workload_seen"] = "workload_seen"
    purpose: Literal["canary", "resubmitted", "running", "return", "misaligned"]
    pod: str
    node: str | None = Field(description="where it runs or was rejected; None until it is scheduled")
    phase: str
    wanted: str
    ok: bool | None
    detail: str


class GangPod(BaseModel):
    """A pod of a gang, and the node from the scheduler."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pod: str
    node: str | None = Field(description="None if it has none")
    gpu_class: str = Field(description="the node's label of GPU classes; empty without a node or a label")
    unschedulable: str = Field(default="", description="the scheduler's message if it found no node")


class GangPlaced(EventModel):
    """The places of a gang of pods, or why none was sent."""

    kind: Literal["gang_placed"] = "gang_placed"
    pods: tuple[GangPod, ...]
    prefers_fast: bool
    why_not_sent: str = ""


class GpuIdentity(BaseModel):
    """A GPU as dcgm-exporter's labels name it; empty if they do not."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gpu: str = Field(description="NVML index as text, as in the frames")
    uuid: str = ""
    model: str = ""
    driver: str = ""
    pci: str = ""


class GpusIdentified(EventModel):
    """The GPUs of a target, so that a report names the exact board."""

    kind: Literal["gpus_identified"] = "gpus_identified"
    node: str
    gpus: tuple[GpuIdentity, ...]
