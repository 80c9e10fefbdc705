"""The content of a ledger: one entry per mutation, with the undo as data.

Whoever finds a ledger cannot know who wrote it. So these models take only what a run of ours could have written, and
`Entry.foreign_objects` names what no such run can have made.
"""

from __future__ import annotations

import getpass
import platform
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from gameday.values.api_requests import api_canary_lease
from gameday.values.nodes import NodeSnapshot, Taint
from gameday.values.results import Cleanliness

ObjectName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
"""A name in the API server's own form (RFC 1123), so that it is part of a path and nothing else."""
OperandLabel = Annotated[str, Field(pattern=r"^nvidia\.com/gpu\.deploy\.[a-z0-9-]+$", max_length=253)]
"""A label by which the GPU operator runs an operand; no other label of a node is ever changed for one."""


def object_prefix(run_id: str) -> str:
    """Return the beginning of the names of a run's pods and jobs, which no other object in our namespace has."""
    return f"gd-{run_id}-"


class LedgerModel(BaseModel):
    """Base of the models that a ledger stores; an unknown field is an error, because an unknown undo is none."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class DeletePod(LedgerModel):
    """Delete a pod of ours."""

    kind: Literal["delete-pod"] = "delete-pod"
    pod: ObjectName


class DeleteJob(LedgerModel):
    """Delete a job of ours and its pods."""

    kind: Literal["delete-job"] = "delete-job"
    job: ObjectName


class TakeOutFault(LedgerModel):
    """End the injector pod, whose termination message proves that the fault is out; without it, send a second agent."""

    kind: Literal["take-out-fault"] = "take-out-fault"
    pod: ObjectName
    gpu: int = Field(ge=0)
    fault: dict[str, Any] = Field(description="the fault's parameters as plain data")
    undo_state: dict[str, str] = Field(
        default={}, description="prior values, as the injector reported them once the fault was in"
    )
    goes_with_node: bool = Field(
        default=False,
        description="the cluster repairs this node and may replace it: the fault is out where the node is gone",
    )
    operands: tuple[OperandLabel, ...] = Field(
        default=(), description="labels of the GPU operator's operands that leave the node while the fault is taken out"
    )


class EndApiCanary(LedgerModel):
    """Delete the API canary's pod, and the Lease that one which was killed leaves behind."""

    kind: Literal["end-api-canary"] = "end-api-canary"
    pod: ObjectName
    lease: ObjectName


class DeleteFlowControl(LedgerModel):
    """Delete a flow schema of ours, and then its priority levels."""

    kind: Literal["delete-flow-control"] = "delete-flow-control"
    schema_name: ObjectName
    levels: tuple[ObjectName, ...] = Field(description="names of the priority levels")


class RestoreLab(LedgerModel):
    """Let the lab's control plane run with the settings again that it was started with."""

    kind: Literal["restore-lab"] = "restore-lab"


class BringBackOperands(LedgerModel):
    """Put back the labels by which the GPU operator runs its operands on a node."""

    kind: Literal["bring-back-operands"] = "bring-back-operands"
    labels: tuple[OperandLabel, ...] = Field(description="keys of the labels, each of which was `true`")


class RestoreGpuClasses(LedgerModel):
    """Put back the labels of nodes' GPU classes that a fleet run has changed, if nobody has changed them since.

    The labels are meant to stay: once all of a run's are written, its entries are settled and this is not carried out.
    """

    kind: Literal["restore-gpu-classes"] = "restore-gpu-classes"
    before: dict[str, str] = Field(description="the label by node before the run; empty: there was none")
    set_to: dict[str, str] = Field(description="the label by node that the run sets")


class RestoreNode(LedgerModel):
    """Put back what detectors and repairs change about a node because of us, and nothing else."""

    kind: Literal["restore-node"] = "restore-node"
    keys: tuple[str, ...] = Field(
        description="keys of the taints that the plan expects and that the cluster's detectors use; none was on the "
        "node before the run, so that any taint of these keys came because of us"
    )
    unschedulable: Literal[False] | None = Field(
        description="False lifts the cordon; None leaves it alone: neither the plan nor we cordon this node"
    )
    awaited: tuple[str, ...] = Field(default=(), description="keys of the taints that the plan expects of the detector")
    within: timedelta = Field(default=timedelta(), description="the detector's time by the plan, from the fault on")
    until: AwareDatetime | None = Field(
        default=None, description="when that time is over, once somebody knows who ended the fault before"
    )

    def removes(self, taint: Taint) -> bool:
        """Return True for a taint that this undo takes off."""
        return taint.key in self.keys

    def is_quarantine_complete(self, node: NodeSnapshot) -> bool:
        """Return True if the node has all that the plan expects of the detector; or anything, if it expects none."""
        keys = {taint.key for taint in node.taints}
        if self.awaited or self.unschedulable is False:
            return keys >= set(self.awaited) and (self.unschedulable is None or node.unschedulable)
        return not keys.isdisjoint(self.keys)

    def is_met_by(self, node: NodeSnapshot) -> bool:
        """Return True if the node is as this undo would leave it."""
        return self.unschedulable in (None, node.unschedulable) and not any(map(self.removes, node.taints))


Undo = Annotated[
    DeletePod
    | DeleteJob
    | TakeOutFault
    | EndApiCanary
    | DeleteFlowControl
    | RestoreLab
    | BringBackOperands
    | RestoreGpuClasses
    | RestoreNode,
    Field(discriminator="kind"),
]


class Entry(LedgerModel):
    """A mutation: its intent, its undo, and how clean the undo left the cluster."""

    id: str = Field(pattern=r"^[-._a-zA-Z0-9]+$", max_length=200)
    """The entry's id, unique in the run; part of a ConfigMap's key."""
    seq: int = Field(ge=0)
    """Place in the order in which the run made its changes, from 0."""
    act: str
    """The change, in words."""
    node: ObjectName | None
    undo: Undo
    expires: AwareDatetime
    settled: Cleanliness | None = None
    """The end of the entry; None until somebody verified the undo by reading."""
    by: str = ""
    """The one that undid it: `flow`, `deadline` or `reaper`."""
    evidence: tuple[str, ...] = ()

    @property
    def object(self) -> str:
        """The changed object as `kind/name`."""
        if isinstance(self.undo, DeletePod | TakeOutFault | EndApiCanary):
            return f"pod/{self.undo.pod}"
        if isinstance(self.undo, DeleteJob):
            return f"job/{self.undo.job}"
        if isinstance(self.undo, DeleteFlowControl):
            return f"flowschema/{self.undo.schema_name}"
        if isinstance(self.undo, RestoreLab):
            return "lab/control-plane"
        if isinstance(self.undo, RestoreGpuClasses):
            return f"labels/{len(self.undo.set_to)} nodes"
        return f"node/{self.node}"

    def foreign_objects(self, run_id: str) -> list[str]:
        """Return the names that this entry would delete and that no object of the run can have; empty for a run's own.

        Flow schemas name their run in themselves, and are looked at when they are deleted.
        """
        match self.undo:
            case DeletePod(pod=name) | TakeOutFault(pod=name) | DeleteJob(job=name):
                return [] if name.startswith(object_prefix(run_id)) else [name]
            case EndApiCanary(pod=name, lease=lease):
                foreign_pod = [] if name.startswith(object_prefix(run_id)) else [name]
                return foreign_pod if lease == api_canary_lease(run_id) else [*foreign_pod, lease]
        return []


class Header(BaseModel):
    """The run that a ledger belongs to.

    Unknown fields are ignored, so that a reaper that is older than the run can read it.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    run_id: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)
    """The run's id, which is a label of its pods as well."""
    plan: str
    started: AwareDatetime
    operator: str
    host: str
    flow_run: str | None = None
    """Prefect's id of the flow run that the run's process was started for; None if no flow carries it."""

    @classmethod
    def of_this_process(cls, run_id: str, plan: str, started: datetime, flow_run: str | None) -> Self:
        """Return the header of what this process plays, by its user and on its machine."""
        return cls(
            run_id=run_id,
            plan=plan,
            started=started,
            operator=getpass.getuser(),
            host=platform.node(),
            flow_run=flow_run,
        )
