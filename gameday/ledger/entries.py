"""What a ledger holds: one entry per mutation, with the undo as data."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from gameday.values.nodes import NodeSnapshot, Taint
from gameday.values.results import Cleanliness


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DeletePod(_Model):
    kind: Literal["delete-pod"] = "delete-pod"
    pod: str


class DeleteJob(_Model):
    kind: Literal["delete-job"] = "delete-job"
    job: str


class TakeOutFault(_Model):
    """End the injector pod and read its word that the fault is out; without that word, undo with a second agent."""

    kind: Literal["take-out-fault"] = "take-out-fault"
    pod: str
    gpu: int
    fault: dict[str, Any] = Field(description="the fault's parameters as plain data")
    undo_state: dict[str, str] = Field(
        default={}, description="prior values, as the injector told them once the fault was in"
    )


class RestoreNode(_Model):
    """Put back what detectors and remediation change about a node because of us.

    `keys` are those of the taints the plan expects and of those the cluster's
    detectors use: none was on the node before the run, so that whatever of
    them is there now came because of us. Nothing else is removed.
    """

    kind: Literal["restore-node"] = "restore-node"
    keys: tuple[str, ...]
    unschedulable: bool | None = Field(
        description="what the cordon is set to; None leaves it alone: neither the plan nor we cordon this node"
    )
    awaited: tuple[str, ...] = Field(default=(), description="keys of the taints that the plan expects of the detector")
    within: timedelta = Field(default=timedelta(), description="the detector's time by the plan, from the fault on")
    until: AwareDatetime | None = Field(
        default=None, description="when that time is over, once somebody knows who ended the fault before"
    )

    def unwanted(self, taint: Taint) -> bool:
        return taint.key in self.keys

    def has_come_to(self, node: NodeSnapshot) -> bool:
        """Return True where the node has all that the plan expects of the detector; or anything, if it expects none."""
        keys = {taint.key for taint in node.taints}
        if self.awaited or self.unschedulable is False:
            return keys >= set(self.awaited) and (self.unschedulable is None or node.unschedulable)
        return not keys.isdisjoint(self.keys)

    def is_met_by(self, node: NodeSnapshot) -> bool:
        """Return True where the node is as this undo would leave it."""
        return self.unschedulable in (None, node.unschedulable) and not any(map(self.unwanted, node.taints))


Undo = Annotated[DeletePod | DeleteJob | TakeOutFault | RestoreNode, Field(discriminator="kind")]


class Entry(_Model):
    """`settled` is None until somebody verified the undo by reading."""

    id: str
    seq: int
    act: str
    node: str | None
    undo: Undo
    expires: AwareDatetime
    settled: Cleanliness | None = None
    by: str = ""
    evidence: tuple[str, ...] = ()

    @property
    def object(self) -> str:
        if isinstance(self.undo, DeletePod | TakeOutFault):
            return f"pod/{self.undo.pod}"
        if isinstance(self.undo, DeleteJob):
            return f"job/{self.undo.job}"
        return f"node/{self.node}"


class Header(BaseModel):
    """Whose ledger this is. A reaper that is older than the run passes over what it does not know: it is no undo."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run_id: str
    plan: str
    started: AwareDatetime
    operator: str
    host: str
    flow_run: str | None = None
    """Prefect's id of the flow run that the run's process was started for; None where no flow carries it."""
