"""The vocabulary of a history: one frozen model per kind of event.

Writers (steps, ledger, observers) and readers (checks, report) share these
models and nothing else, so a report can be rendered a year later without a
cluster. Every event carries UTC wall time for people and a monotonic clock
for durations; `monotonic` is only comparable within one `boot`.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter

from gameday.values.api_loads import Measured
from gameday.values.api_requests import ApiCanarySample, ApiRequest, LoadStage
from gameday.values.devices import HeldDevice
from gameday.values.nodes import NodeReadiness, NodeRole, NodeSnapshot, Taint, Target
from gameday.values.pod_steps import PodsPlaced, PodStep
from gameday.values.results import Cleanliness, Hop, RepairHop, RepairKind, Step, StepOutcome


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RunStarted(_Event):
    kind: Literal["run_started"] = "run_started"
    run_id: str
    plan_name: str
    plan_sha256: str = Field(description="of the plan file's bytes, kept beside the history as plan.yaml")
    gameday_version: str
    trigger: Literal["rehearsal", "manual", "scheduled"]
    operator: str
    cluster: str = Field(description="kube context or server URL, without credentials")
    cluster_uid: str = Field(description="UID of the kube-system namespace")
    cluster_name: str = Field(default="", description="what people call the cluster: the profile's name")
    cluster_id: str = Field(default="", description="the name by which runs count as one cluster's; empty: its UID")
    server_version: str
    role: NodeRole = Field(default=NodeRole.GPU, description="of the targets")
    flow_run_id: str | None = None
    flow_run_url: str | None = None
    command: str = Field(description="shell line that runs the same plan again")


class StepStarted(_Event):
    kind: Literal["step_started"] = "step_started"
    step: Step
    deadline_s: float | None = Field(description="seconds the step may take; None where it has no bound")


class StepEnded(_Event):
    kind: Literal["step_ended"] = "step_ended"
    step: Step
    outcome: StepOutcome
    why: str = ""


class WaitStarted(_Event):
    """The condition that the run waits for; the live view shows the newest one."""

    kind: Literal["wait_started"] = "wait_started"
    step: Step
    what: str
    deadline_s: float


class TargetsChosen(_Event):
    kind: Literal["targets_chosen"] = "targets_chosen"
    targets: tuple[Target, ...]
    candidates: int
    rule: str
    seed: int


class SteadyStateChecked(_Event):
    """A line of the steady-state gate. `ok` None means it could not be read."""

    kind: Literal["steady_state_checked"] = "steady_state_checked"
    name: str
    ok: bool | None
    detail: str
    node: str | None = None
    seconds: float | None = Field(default=None, description="latency, where the check measures one")


class NodeSeen(_Event):
    kind: Literal["node_seen"] = "node_seen"
    phase: Literal["before", "during", "after"]
    snapshot: NodeSnapshot


class IntentRecorded(_Event):
    """Written to the ledger before the act it announces."""

    kind: Literal["intent_recorded"] = "intent_recorded"
    intent: str = Field(description="id, unique within the run")
    act: str
    undo: str
    object: str = Field(description="kind/namespace/name, or a node's name for host state")
    node: str | None = None
    expires: AwareDatetime


class FaultInjected(_Event):
    kind: Literal["fault_injected"] = "fault_injected"
    intent: str
    target: Target
    fault: str
    layer: str
    written_at: AwareDatetime = Field(description="as the agent on the node read its clock")
    evidence: tuple[str, ...]
    does_not_reach: str = Field(default="", description="the fault's own word, so that a report needs no fault code")
    seen_by: tuple[str, ...] = Field(default=(), description="detectors that could see it; the fault's own word")


class FlowControlSet(_Event):
    """The priority level and the flow schema of the plan are in force."""

    kind: Literal["flow_control_set"] = "flow_control_set"
    name: str
    seats: int = Field(description="seats of the level on each API server, as the plan wants them")
    shares: int = Field(description="shares of the level")
    spare_shares: int = Field(description="shares of the level beside it that takes no requests and lends all it has")
    total_seats: int = Field(description="seats of an API server before, as computed from its metrics")


class SeatsRead(_Event):
    """The nominal seats of our level on each API server, read from its own metrics."""

    kind: Literal["seats_read"] = "seats_read"
    phase: Literal["before", "after"] = Field(description="before the fault goes in, or after it")
    seats: dict[str, int] = Field(description="server -> nominal seats")


class FlowControlRead(_Event):
    """The plan's flow schema and priority levels, read once more after the load."""

    kind: Literal["flow_control_read"] = "flow_control_read"
    changes: tuple[str, ...] = Field(description="what somebody else did to them meanwhile; empty: nobody changed them")


class ApiCanarySampled(_Event):
    """Samples of the API canary since the event before."""

    kind: Literal["api_canary_sampled"] = "api_canary_sampled"
    node: str = Field(description="where the canary runs")
    samples: tuple[ApiCanarySample, ...]


class LoadLogged(_Event):
    """The requests of a fault that loads the API server, by its clients' own log."""

    kind: Literal["load_logged"] = "load_logged"
    node: str
    requests: tuple[ApiRequest, ...]
    levels: dict[str, str] = Field(
        default={}, description="names of the priority levels that answers name, by UID, as far as they could be read"
    )


class LoadStaged(_Event):
    """The stages of a fault that loads the API server, and the LIST that each of its clients asked for."""

    kind: Literal["load_staged"] = "load_staged"
    node: str
    list_bytes: int = Field(description="of one LIST as JSON, whatever form the clients ask for")
    form: str = Field(description="of the clients' LISTs")
    stages: tuple[LoadStage, ...] = Field(description="those that ended by themselves, in their order")


class LoadMeasured(_Event):
    """The figures that a load on the API server took of itself, where they are no list of requests."""

    kind: Literal["load_measured"] = "load_measured"
    node: str
    measured: Measured


class NodesAndPodsSeen(_Event):
    """All nodes, and all pods that run on them, at one moment: what a fault of the control plane must leave alone."""

    kind: Literal["nodes_and_pods_seen"] = "nodes_and_pods_seen"
    phase: Literal["before", "after"] = Field(description="before the fault goes in, or at the end of the run")
    nodes: dict[str, NodeReadiness] = Field(description="by name")
    pods: dict[str, str] = Field(description="UID -> namespace/name; without those that are ended, or have failed")


class LoadEnded(_Event):
    """The end of a fault that loads the API server, as its agent's last message has it."""

    kind: Literal["load_ended"] = "load_ended"
    node: str
    failed: str = Field(description="why it did not run to its end; empty where it did")


class HeldServersStarted(_Event):
    """The API servers of a lab that were held back start, while the fault is in."""

    kind: Literal["held_servers_started"] = "held_servers_started"
    servers: tuple[str, ...]


class ApiServersRestarted(_Event):
    """The API servers of a lab were restarted by the run, one after the other, with the load gone."""

    kind: Literal["api_servers_restarted"] = "api_servers_restarted"
    asked_at: AwareDatetime
    ready_at: AwareDatetime = Field(description="when the last of them answered /readyz with its caches filled")


class PodStepsLogged(_Event):
    """The pods that a fault created in steps, by its own log."""

    kind: Literal["pod_steps_logged"] = "pod_steps_logged"
    node: str = Field(description="where the fault's pod ran")
    steps: tuple[PodStep, ...]
    placed: PodsPlaced | None = Field(description="None where the fault ended before it looked")


class FaultUndone(_Event):
    kind: Literal["fault_undone"] = "fault_undone"
    intent: str
    node: str | None
    by: Literal["flow", "deadline", "reaper"]
    cleanliness: Cleanliness
    evidence: tuple[str, ...] = Field(description="what was read before, written and read after")
    attempts: int = 1


class HopSeen(_Event):
    """`at` is when the hop happened by its own source's clock, not when we learnt of it."""

    kind: Literal["hop_seen"] = "hop_seen"
    hop: Hop
    node: str
    at: AwareDatetime
    source: str


class AlertSeen(_Event):
    """An alert's life as Prometheus or Alertmanager reports it; repeated when its state changes."""

    kind: Literal["alert_seen"] = "alert_seen"
    alert: str
    state: Literal["pending", "firing", "resolved"]
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    node: str | None
    expected: bool
    at: AwareDatetime
    since: AwareDatetime | None = Field(
        default=None, description="when its condition began to hold (Prometheus' activeAt); None where nobody said"
    )
    at_baseline: bool = Field(default=False, description="already there before the fault; never blamed on it")
    background: bool = Field(default=False, description="one that the cluster profile calls background")
    silenced: bool = False
    inhibited: bool = Field(default=False, description="muted by another alert: held, and nobody is notified")
    receivers: tuple[str, ...] = ()

    @property
    def label_set(self) -> str:
        """The labels that identify it, its name among them: a rule by GPU and code fires for a node several times."""
        return json.dumps(self.labels, sort_keys=True)


class TaintSeen(_Event):
    kind: Literal["taint_seen"] = "taint_seen"
    node: str
    taint: Taint
    present: bool
    manager: str | None = Field(description="managedFields manager that owns it; None where the server names none")
    at: AwareDatetime
    at_baseline: bool = Field(default=False, description="of an incident: it stood when the window began")


class DeviceTaintSeen(_Event):
    """A taint of a target's device, in a ResourceSlice, that came or went; `at` is when the watch showed it."""

    kind: Literal["device_taint_seen"] = "device_taint_seen"
    node: str
    driver: str
    device: str
    taint: Taint
    present: bool
    at: AwareDatetime


class DevicesHeld(_Event):
    """The devices of a target that ResourceClaims have for pods.

    `before` the fault; when the pods that were to leave had `left`; and `during` the fault, after the quiet time.
    """

    kind: Literal["devices_held"] = "devices_held"
    node: str
    phase: Literal["before", "left", "during"]
    held: tuple[HeldDevice, ...]
    at: AwareDatetime


class ConditionSeen(_Event):
    """A condition of a target that came, changed or went; `at` is when the watch showed it."""

    kind: Literal["condition_seen"] = "condition_seen"
    node: str
    condition: str
    status: str | None = Field(description="True, False or Unknown; None where the condition is no longer there")
    reason: str = ""
    message: str = ""
    at: AwareDatetime


class LabelSeen(_Event):
    """A label of a target that came, changed or went; `at` is when the watch showed it."""

    kind: Literal["label_seen"] = "label_seen"
    node: str
    label: str
    value: str | None = Field(description="None where the label is no longer there")
    at: AwareDatetime


class AllocatableSeen(_Event):
    """The count of GPUs that the kubelet offers on a target, at each change; `at` is when the watch showed it."""

    kind: Literal["allocatable_seen"] = "allocatable_seen"
    node: str
    gpus: int | None = Field(description="allocatable nvidia.com/gpu; None where the node reports none")
    before: int | None
    at: AwareDatetime


class CordonSeen(_Event):
    """A target that was made unschedulable, or schedulable again; `at` is when the watch showed it."""

    kind: Literal["cordon_seen"] = "cordon_seen"
    node: str
    cordoned: bool
    at: AwareDatetime


class DetectorConsulted(_Event):
    """The profile of the detector that the plan names: which of the plan's expectations are the profile's."""

    kind: Literal["detector_consulted"] = "detector_consulted"
    detector: str
    title: str
    source: str = Field(description="the source of the profile's word on this fault")
    sees: bool | None = Field(description="None where the profile says nothing about this fault")
    why: str = Field(default="", description="why it cannot see the fault, or what else is to be known")
    filled: tuple[str, ...] = Field(description="keys of the plan's `expect` that come from the profile")


class KubernetesEventSeen(_Event):
    """A Kubernetes Event about a target node, as its own time stamps date it."""

    kind: Literal["kubernetes_event_seen"] = "kubernetes_event_seen"
    node: str
    reason: str
    type: str = Field(description="Normal, Warning, or what else the writer put there")
    source: str = Field(description="reporting component")
    message: str
    count: int = 1
    at: AwareDatetime


class SignalUnwatched(_Event):
    """A signal that the run could not follow: what is said of it is unknown, and no absence."""

    kind: Literal["signal_unwatched"] = "signal_unwatched"
    node: str
    signal: Literal["events", "custom resources", "devices"]
    why: str


class CanaryMeasured(_Event):
    """A canary job's measurement on a target: the signal of faults that slow work down and break nothing."""

    kind: Literal["canary_measured"] = "canary_measured"
    node: str
    measure: str = Field(description="what was measured, e.g. 'all-reduce bus bandwidth'")
    phase: Literal["before", "during", "after"]
    value: float | None = Field(description="None where it could not be measured")
    unit: str
    bound: str = Field(default="", description="as shown to people; empty where there is none")
    ok: bool | None
    detail: str = ""
    gpus: int = Field(default=0, description="how many GPUs the canary held")
    peer: str = Field(default="", description="who answered, where it asked somebody")
    at: AwareDatetime


class KernelLineSeen(_Event):
    """A line of a real incident's kernel log that speaks of a GPU or an NVSwitch: a post-mortem's, nothing injected."""

    kind: Literal["kernel_line_seen"] = "kernel_line_seen"
    node: str
    family: str = Field(description="xid, sxid, gpu-lost, peermem or gpu-reset")
    code: int | None = Field(description="None where the line names none")
    pci: str | None = Field(description="of the GPU or NVSwitch; None where the line names none")
    decision: str = Field(description="what NVIDIA's catalogue asks for: quarantine, workload, event or ignore")
    reason: str
    line: str
    at: AwareDatetime = Field(description="as the log store dates the line")


class WorkloadSeen(_Event):
    """A pod's proof about scheduling.

    `canary` must not land on the tainted node; `resubmitted` must land on a
    healthy one; `running` is a pod that was there before; `return` must land
    on the node after QA; `misaligned` asks for more than one NUMA node has, and
    must be rejected by the kubelet.
    """

    kind: Literal["workload_seen"] = "workload_seen"
    purpose: Literal["canary", "resubmitted", "running", "return", "misaligned"]
    pod: str
    node: str | None = Field(description="where it runs or was rejected; None while it is scheduled nowhere")
    phase: str
    wanted: str
    ok: bool | None
    detail: str


class RecoveryDisturbed(_Event):
    """A second fault that was to be in while the node is repaired; what it did shows in `Remediated` after it."""

    kind: Literal["recovery_disturbed"] = "recovery_disturbed"
    intent: str
    target: Target
    fault: str
    layer: str
    written_at: AwareDatetime | None = Field(description="by the node's clock; None where it did not go in")
    evidence: tuple[str, ...]


class Remediated(_Event):
    kind: Literal["remediated"] = "remediated"
    node: str
    action: str
    ok: bool
    detail: str
    seconds: float


class RepairAwaited(_Event):
    """The game-day keeps its hands off this target from now on: the cluster repairs it. Written before the fault."""

    kind: Literal["repair_awaited"] = "repair_awaited"
    node: str


class RepairHopSeen(_Event):
    """A hop of the cluster's repair; repeated when the cluster shows later who took it. The last record counts."""

    kind: Literal["repair_hop_seen"] = "repair_hop_seen"
    hop: RepairHop
    node: str = Field(description="the target's name, also after another node has taken its place")
    at: AwareDatetime = Field(description="by the clock of `source`, and not before the hop before")
    by: str = Field(description="field manager, Event's component, or resource that took the hop; or 'unknown'")
    source: str
    took_s: float = Field(description="seconds from the hop before; of the first hop from the fault")
    since: str = Field(description="the hop before, or 'fault written'")
    repair: RepairKind | None = Field(default=None, description="of the hop 'repaired'")


class NodeReplaced(_Event):
    """Another node of the same pool has taken the target's place; the run goes on with it."""

    kind: Literal["node_replaced"] = "node_replaced"
    node: str = Field(description="the target's name, as it was chosen")
    successor: str = Field(description="the same name where a new machine took it over")
    pool: dict[str, str] = Field(description="labels that both nodes share")
    boot_id: str
    at: AwareDatetime


class RepairChainEnded(_Event):
    """The game-day waits for no further hop of the cluster's repair."""

    kind: Literal["repair_chain_ended"] = "repair_chain_ended"
    node: str
    stopped_at: RepairHop | None = Field(description="the hop that did not come in time; None where all was as planned")
    why: str = ""
    missed: tuple[RepairHop, ...] = Field(default=(), description="hops before that which did not come in time either")
    left: tuple[str, ...] = Field(default=(), description="what the cluster left on the node: taints, cordon, labels")
    in_service: bool = Field(description="the node takes work again")


class QaLeftOut(_Event):
    """The game-day does not prove a node good that the cluster repairs; nobody asked it to, or it may not."""

    kind: Literal["qa_left_out"] = "qa_left_out"
    node: str = Field(description="the node in the target's place")
    why: str


class QaChecked(_Event):
    """A QA check of one GPU (or of the whole node when `gpu` is None) against its floor or ceiling."""

    kind: Literal["qa_checked"] = "qa_checked"
    node: str
    gpu: int | None
    check: str
    value: float | str | None = Field(description="None where it could not be measured")
    unit: str = ""
    bound: str = Field(description="as shown to people, e.g. '>= 650 TFLOP/s'; empty where there is none")
    ok: bool | None
    seconds: float | None = None
    detail: str = ""


class NodeReturned(_Event):
    kind: Literal["node_returned"] = "node_returned"
    node: str
    removed_taints: tuple[Taint, ...]
    uncordoned: bool


class GuardChecked(_Event):
    """A guardrail, as it was found before the fault or while it was in."""

    kind: Literal["guard_checked"] = "guard_checked"
    guardrail: str
    phase: Literal["before", "during"]
    limit: str = Field(description="as shown to people, with whose limit it is")
    measured: str = Field(description="empty where it could not be measured")
    ok: bool | None = Field(description="None where it could not be measured")
    why: str = Field(default="", description="what is wrong, or why it could not be measured")
    nodes: tuple[str, ...] = Field(default=(), description="nodes that `why` speaks of, beside the targets")
    looks: int = Field(default=1, description="how often it was looked at in this phase, this time included")


class ApprovalAsked(_Event):
    """The run waits for a person's yes; nothing is broken yet."""

    kind: Literal["approval_asked"] = "approval_asked"
    within_s: float
    where: str = Field(description="where the answer is given")


class ApprovalAnswered(_Event):
    """`by` is the name the person gave: Prefect's open-source server knows no users."""

    kind: Literal["approval_answered"] = "approval_answered"
    approved: bool
    by: str
    via: Literal["Prefect", "command line"]
    comment: str = ""
    season: str = Field(default="", description="the season for which it was answered once; empty: for this run alone")
    answered_at: AwareDatetime | None = Field(default=None, description="None: when this was written")


class ApiCost(_Event):
    """The run's cost to one server, cumulated since the run started."""

    kind: Literal["api_cost"] = "api_cost"
    server: Literal["kubernetes", "prometheus", "alertmanager", "loki"]
    requests: int
    bytes_received: int
    bytes_sent: int
    by_call: dict[str, int] = Field(description="'VERB resource' -> requests")


class FrameRead(_Event):
    """The source of a frame's rows, so that every number has its source."""

    kind: Literal["frame_read"] = "frame_read"
    frame: str
    server: str = Field(description="whose answer it is")
    query: str = Field(description="as it was asked; for a watch what it selects")
    start: AwareDatetime
    end: AwareDatetime
    step_s: float | None = Field(description="one sample per so many seconds; None: every one there is")
    rows: int


class OwnCost(_Event):
    """The run's cost to the machine it ran on, from its start to the closing of its frames."""

    kind: Literal["own_cost"] = "own_cost"
    cpu_s: float = Field(description="seconds of processor, user and system, of the process the run was in")
    peak_rss_bytes: int = Field(description="the most memory that process ever held")


class GpuIdentity(BaseModel):
    """A GPU as dcgm-exporter's labels name it; empty where they do not."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gpu: str = Field(description="NVML index as text, as in the frames")
    uuid: str = ""
    model: str = ""
    driver: str = ""
    pci: str = ""


class GpusIdentified(_Event):
    """The GPUs of a target, so that a report names the very board."""

    kind: Literal["gpus_identified"] = "gpus_identified"
    node: str
    gpus: tuple[GpuIdentity, ...]


class Problem(_Event):
    """Something went wrong that did not end the run; `hint` says what a person can do."""

    kind: Literal["problem"] = "problem"
    step: Step | None
    what: str
    hint: str = ""


class Aborted(_Event):
    kind: Literal["aborted"] = "aborted"
    by: Literal["operator", "guard"]
    why: str


class Refused(_Event):
    """Nothing was changed; the run stops before inject."""

    kind: Literal["refused"] = "refused"
    why: str
    hint: str = ""


class RunEnded(_Event):
    kind: Literal["run_ended"] = "run_ended"
    cleanliness: Cleanliness


Event = Annotated[
    RunStarted | StepStarted | StepEnded | WaitStarted | TargetsChosen | SteadyStateChecked | NodeSeen
    | IntentRecorded | FaultInjected | FaultUndone | HopSeen | AlertSeen | TaintSeen | ConditionSeen | LabelSeen
    | DeviceTaintSeen | DevicesHeld
    | AllocatableSeen | CordonSeen | DetectorConsulted | KubernetesEventSeen | CanaryMeasured | WorkloadSeen
    | RecoveryDisturbed | Remediated | RepairAwaited | RepairHopSeen | NodeReplaced | RepairChainEnded
    | QaLeftOut | QaChecked | NodeReturned | GuardChecked | ApprovalAsked | ApprovalAnswered
    | SignalUnwatched | FlowControlSet | SeatsRead | FlowControlRead | ApiCanarySampled | LoadLogged | LoadStaged
    | LoadMeasured | LoadEnded | HeldServersStarted | ApiServersRestarted | NodesAndPodsSeen | PodStepsLogged
    | ApiCost | FrameRead | OwnCost | GpusIdentified | KernelLineSeen | Problem | Aborted | Refused | RunEnded,
    Field(discriminator="kind"),
]  # fmt: skip


class Record(BaseModel):
    """A line of history.jsonl."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int
    at: AwareDatetime
    monotonic: float = Field(description="seconds; comparable only between records of the same `boot`")
    boot: str = Field(description="identifies the writing process")
    event: Event


RECORD: TypeAdapter[Record] = TypeAdapter(Record)
