"""The vocabulary of a history: one frozen model per kind of event.

Writers (steps, ledger, observers) and readers (checks, report) share only these models, so a report can be rendered a
year later without a cluster. Every event carries UTC wall time for people, and a monotonic clock for durations, which
is only comparable within one `boot`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AwareDatetime, ConfigDict, Field, SerializeAsAny, TypeAdapter
from pydantic.dataclasses import dataclass

from gameday.history.events.cost import (
    ApiCost,
    FrameRead,
    OwnCost,
)
from gameday.history.events.fault import (
    FaultInjected,
    FaultUndone,
    IntentRecorded,
    RecoveryDisturbed,
)
from gameday.history.events.guests import (
    BystanderChanged,
    BystandersWatched,
    GuestNamed,
    GuestSpoke,
    GuestState,
)
from gameday.history.events.model import EventModel
from gameday.history.events.repair import (
    ApiServersRestarted,
    NodeReplaced,
    NodeReturned,
    QaChecked,
    QaLeftOut,
    Remediated,
    RepairAwaited,
    RepairChainEnded,
    RepairHopSeen,
)
from gameday.history.events.run import (
    Aborted,
    ApprovalAnswered,
    ApprovalAsked,
    DoctorAsked,
    DoctorFinding,
    GuardChecked,
    Problem,
    Refused,
    RunEnded,
    RunStarted,
    SteadyStateChecked,
    StepEnded,
    StepStarted,
    TargetsChosen,
    WaitStarted,
)
from gameday.history.events.signals import (
    AlertChosen,
    AlertSeen,
    AllocatableSeen,
    CanaryMeasured,
    ConditionSeen,
    CordonSeen,
    DetectorConsulted,
    DevicesHeld,
    DeviceTaintSeen,
    GangPlaced,
    GangPod,
    GpuIdentity,
    GpusIdentified,
    HopSeen,
    JobStepSeen,
    KernelLineSeen,
    KubernetesEventSeen,
    LabelSeen,
    LeftToOwner,
    NodeSeen,
    ProbeAnswered,
    PrometheusFellBehind,
    SignalUnwatched,
    SignSeen,
    TaintSeen,
    WorkloadSeen,
)
from gameday.values.models import objects_only

__all__ = [
    "RECORD",
    "Aborted",
    "AlertChosen",
    "AlertSeen",
    "AllocatableSeen",
    "ApiCost",
    "ApiServersRestarted",
    "ApprovalAnswered",
    "ApprovalAsked",
    "BystanderChanged",
    "BystandersWatched",
    "CanaryMeasured",
    "ConditionSeen",
    "CordonSeen",
    "DetectorConsulted",
    "DeviceTaintSeen",
    "DevicesHeld",
    "DoctorAsked",
    "DoctorFinding",
    "Event",
    "EventModel",
    "FaultInjected",
    "FaultUndone",
    "FrameRead",
    "GangPlaced",
    "GangPod",
    "GpuIdentity",
    "GpusIdentified",
    "GuardChecked",
    "GuestNamed",
    "GuestSpoke",
    "GuestState",
    "HopSeen",
    "IntentRecorded",
    "JobStepSeen",
    "KernelLineSeen",
    "KubernetesEventSeen",
    "LabelSeen",
    "LeftToOwner",
    "NodeReplaced",
    "NodeReturned",
    "NodeSeen",
    "OwnCost",
    "ProbeAnswered",
    "Problem",
    "PrometheusFellBehind",
    "QaChecked",
    "QaLeftOut",
    "Record",
    "RecoveryDisturbed",
    "Refused",
    "Remediated",
    "RepairAwaited",
    "RepairChainEnded",
    "RepairHopSeen",
    "RunEnded",
    "RunStarted",
    "SignSeen",
    "SignalUnwatched",
    "SteadyStateChecked",
    "StepEnded",
    "StepStarted",
    "TaintSeen",
    "TargetsChosen",
    "WaitStarted",
    "WorkloadSeen",
]

_OwnEvent = Annotated[
    RunStarted | StepStarted | StepEnded | WaitStarted | TargetsChosen | SteadyStateChecked | NodeSeen
    | IntentRecorded | FaultInjected | FaultUndone | HopSeen | AlertSeen | TaintSeen | ConditionSeen | LabelSeen
    | DeviceTaintSeen | DevicesHeld | AlertChosen
    | AllocatableSeen | CordonSeen | LeftToOwner | DetectorConsulted | KubernetesEventSeen | CanaryMeasured
    | WorkloadSeen | GangPlaced | ProbeAnswered | JobStepSeen
    | RecoveryDisturbed | Remediated | RepairAwaited | RepairHopSeen | NodeReplaced | RepairChainEnded
    | QaLeftOut | QaChecked | NodeReturned | GuardChecked | ApprovalAsked | ApprovalAnswered
    | SignSeen | SignalUnwatched | PrometheusFellBehind | DoctorAsked | ApiServersRestarted
    | GuestNamed | GuestState | GuestSpoke | BystandersWatched | BystanderChanged
    | ApiCost | FrameRead | OwnCost | GpusIdentified | KernelLineSeen | Problem | Aborted | Refused | RunEnded,
    Field(discriminator="kind"),
]  # fmt: skip


# Events of other packages are read by `other_events`, which makes them objects first.
Event = Annotated[
    _OwnEvent | SerializeAsAny[Annotated[EventModel, objects_only(EventModel)]], Field(union_mode="left_to_right")
]


@dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class Record:
    """A line of history.jsonl.

    It is a dataclass, not a model, because the 50,000 records of a run of 500 nodes are then read a seventh faster, and
    freed in half the time (docs/measured.md).
    """

    seq: int
    at: AwareDatetime
    monotonic: float
    """Seconds; comparable only between records of the same `boot`."""
    boot: str
    """Id of the writing process."""
    event: Event


RECORD: TypeAdapter[Record] = TypeAdapter(Record)
