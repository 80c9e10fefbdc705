"""The content of a ledger: one entry per mutation, with the undo as data."""

from __future__ import annotations

import getpass
import platform
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from gameday.values.nodes import NodeSnapshot, Taint
from gameday.values.results import Cleanliness


class LedgerModel(BaseModel):
    """Base of the models that a ledger stores; an unknown field is an error, because an unknown undo is none."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class DeletePod(LedgerModel):
    """Delete a pod of ours."""

    kind: Literal["delete-pod"] = "delete-pod"
    pod: str


class DeleteJob(LedgerModel):
    """Delete a job of ours and its pods."""

    kind: Literal["delete-job"] = "delete-job"
    job: str


class TakeOutFault(LedgerModel):
    """End the injector pod, whose termination message proves that the fault is out; without it, send a second agent."""

    kind: Literal["take-out-fault"] = "take-out-fault"
    pod: str
    gpu: int
    fault: dict[str, Any] = Field(description="the fault's parameters as plain data")
    undo_state: dict[str, str] = Field(
        default={}, description="prior values, as the injector reported them once the fault was in"
    )
    goes_with_node: bool = Field(
        default=False,
        description="the cluster repairs this node and may replace it: the fault is out where the node is gone",
    )
    operands: tuple[str, ...] = Field(
        default=(), description="labels of the GPU operator's operands that leave the node while the fault is taken out"
    )


class EndApiCanary(LedgerModel):
    """Delete the API canary's pod, and the Lease that one which was killed leaves behind."""

    kind: Literal["end-api-canary"] = "end-api-canary"
    pod: str
    lease: str


class DeleteFlowControl(LedgerModel):
    """Delete a flow schema of ours, and then its priority levels."""

    kind: Literal["delete-flow-control"] = "delete-flow-control"
    schema_name: str
    levels: tuple[str, ...] = Field(description="names of the priority levels")


class RestoreLab(LedgerModel):
    """Let the lab's control plane run with the settings again that it was started with."""

    kind: Literal["restore-lab"] = "restore-lab"


class BringBackOperands(LedgerModel):
    """Put back the labels by which the GPU operator runs its operands on a node."""

    kind: Literal["bring-back-operands"] = "bring-back-operands"
    labels: tuple[str, ...] = Field(description="keys of the labels, each of which was `true`")


class RestoreGpuClasses(LedgerModel):
    """Put back the labels of nodes' GPU classes that a fleet run has changed, where nobody has changed them since.

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
    unschedulable: bool | None = Field(
        description="the cordon is set to this; None leaves it alone: neither the plan nor we cordon this node"
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
        """Return True where the node has all that the plan expects of the detector; or anything, if it expects none."""
        keys = {taint.key for taint in node.taints}
        if self.awaited or self.unschedulable is False:
            return keys >= set(self.awaited) and (self.unschedulable is None or node.unschedulable)
        return not keys.isdisjoint(self.keys)

    def is_met_by(self, node: NodeSnapshot) -> bool:
        """Return True where the node is as this undo would leave it."""
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

    id: str
    """The entry's id, unique in the run."""
    seq: int
    """Place in the order in which the run made its changes, from 0."""
    act: str
    """The change, in words."""
    node: str | None
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


class Header(BaseModel):
    """The run that a ledger belongs to.

    Unknown fields are ignored, so that a reaper that is older than the run can read it.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    run_id: str
    plan: str
    started: AwareDatetime
    operator: str
    host: str
    flow_run: str | None = None
    """Prefect's id of the flow run that the run's process was started for; None where no flow carries it."""

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
