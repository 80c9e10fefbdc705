"""The content of a ledger: one entry per mutation, with the undo as data.

Nobody can know who wrote a ledger. So these models accept only what one of our runs could have written, and
`Entry.foreign_objects` names the objects that no such run can have made.
"""

from __future__ import annotations

import getpass
import platform
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from types import ModuleType
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from gameday.agent.task import AgentResult
from gameday.plugins import Found, Group, classes_in, find
from gameday.text import shown
from gameday.values.models import objects_only
from gameday.values.nodes import NodeSnapshot, Taint
from gameday.values.results import Cleanliness

ObjectName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
"""A name in the API server's own form (RFC 1123), so it can only be one part of a path."""
OperandLabel = Annotated[str, Field(pattern=r"^nvidia\.com/gpu\.deploy\.[a-z0-9-]+$", max_length=253)]
"""A label by which the GPU operator runs an operand; no other label of a node is changed for this."""


def object_prefix(run_id: str) -> str:
    """Return the prefix of the names of a run's pods and jobs; no other object in our namespace has it."""
    return f"gd-{run_id}-"


class LedgerModel(BaseModel):
    """Base of the models that a ledger stores; an unknown field is an error, because nobody could undo it."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PackageUndo(LedgerModel, ABC):
    """Base of the undos that other packages add. A subclass has a `kind`, a Literal that no other undo has."""

    kind: str

    @property
    @abstractmethod
    def object(self) -> str:
        """The changed object as `kind/name`."""

    def foreign_objects(self, run_id: str) -> list[str]:
        """Return the names that the undo would delete but that no object of the run can have."""
        return []

    @abstractmethod
    def carry_out(self, cluster: Any, run_id: str, pods: Any) -> UndoResult:
        """Undo the change and verify it by reading; idempotent.

        Args:
            cluster: The cluster (`gameday.cluster.kubernetes.Kubernetes`).
            run_id: The run that made the change.
            pods: Follows the run's pods (`gameday.cluster.pods.PodFollower`).

        Raises:
            KubernetesError: The cluster does not answer; the change stays open.
        """


@dataclass(frozen=True)
class UndoResult:
    """The state that was read back after an undo."""

    cleanliness: Cleanliness
    evidence: tuple[str, ...]
    by_deadline: bool = False
    """The pod's own deadline ended the fault, not this undo."""
    injector: AgentResult | None = None
    """The last report of the fault's own injector; None: it left none, or the entry is not a fault's."""


class DeletePod(LedgerModel):
    """Delete one of our pods."""

    kind: Literal["delete-pod"] = "delete-pod"
    pod: ObjectName


class DeleteJob(LedgerModel):
    """Delete one of our jobs and its pods."""

    kind: Literal["delete-job"] = "delete-job"
    job: ObjectName


class TakeOutFault(LedgerModel):
    """End the injector pod; its termination message proves that the fault is out. Without it, send a second agent."""

    kind: Literal["take-out-fault"] = "take-out-fault"
    pod: ObjectName
    gpu: int = Field(ge=0)
    fault: dict[str, Any] = Field(description="the fault's parameters as plain data")
    undo_state: dict[str, str] = Field(
        default={}, description="prior values, as the injector reported them once the fault was in"
    )
    goes_with_node: bool = Field(
        default=False,
        description="the cluster repairs this node and may replace it: the fault is out if the node is gone",
    )
    operands: tuple[OperandLabel, ...] = Field(
        default=(), description="labels of the GPU operator's operands that leave the node while the fault is taken out"
    )


class RestoreLab(LedgerModel):
    """Give the lab's control plane the settings again that it was started with."""

    kind: Literal["restore-lab"] = "restore-lab"


class BringBackOperands(LedgerModel):
    """Put back the labels by which the GPU operator runs its operands on a node."""

    kind: Literal["bring-back-operands"] = "bring-back-operands"
    labels: tuple[OperandLabel, ...] = Field(description="keys of the labels; each was `true`")


class RestoreGpuClasses(LedgerModel):
    """Put back the labels of nodes' GPU classes that a fleet run has changed, if nobody has changed them since.

    The labels are meant to stay: once a run has written all of them, its entries are settled and this is not carried
    out.
    """

    kind: Literal["restore-gpu-classes"] = "restore-gpu-classes"
    before: dict[str, str] = Field(description="the label by node before the run; empty: there was none")
    set_to: dict[str, str] = Field(description="the label by node that the run sets")


class RestoreNode(LedgerModel):
    """Put back what detectors and repairs change on a node because of us, and nothing else."""

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
        """Return True for a taint that this undo removes."""
        return taint.key in self.keys

    def is_quarantine_complete(self, node: NodeSnapshot) -> bool:
        """Return True if the node has all marks that the plan expects of the detector, or any if it expects none."""
        keys = {taint.key for taint in node.taints}
        if self.awaited or self.unschedulable is False:
            return keys >= set(self.awaited) and (self.unschedulable is None or node.unschedulable)
        return not keys.isdisjoint(self.keys)

    def is_met_by(self, node: NodeSnapshot) -> bool:
        """Return True if the node is in the state that this undo would leave it in."""
        return self.unschedulable in (None, node.unschedulable) and not any(map(self.removes, node.taints))


_OwnUndo = Annotated[
    DeletePod | DeleteJob | TakeOutFault | RestoreLab | BringBackOperands | RestoreGpuClasses | RestoreNode,
    Field(discriminator="kind"),
]


@cache
def found_undos() -> Found[type[PackageUndo]]:
    """Return the undos of other packages by their kinds."""
    return find(Group.UNDOS, (), _undos_in)


def _undos_in(module: ModuleType) -> dict[str, type[PackageUndo]]:
    found = classes_in(module, PackageUndo, ())  # type: ignore[type-abstract]
    return {undo.model_fields["kind"].default: undo for undo in found}


def _of_a_package(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind in _OWN_KINDS:
        return handler(value)
    model = found_undos().parts.get(kind)
    if model is None:
        raise PydanticCustomError(
            "undo_kind",
            "no package that is installed here has the undo {kind}: install the run's, and reap again",
            {"kind": shown(kind)},
        )
    return model.model_validate(value)


_OWN_KINDS = {one.model_fields["kind"].default for one in get_args(get_args(_OwnUndo)[0])}
Undo = Annotated[
    _OwnUndo | SerializeAsAny[Annotated[PackageUndo, objects_only(PackageUndo)]],
    Field(union_mode="left_to_right"),
    WrapValidator(_of_a_package),
]
"""An undo of the core's, or of an installed package. An entry with any other cannot be read, and stays open."""


class Entry(LedgerModel):
    """A mutation: its intent, its undo, and how clean the cluster is after the undo."""

    id: str = Field(pattern=r"^[-._a-zA-Z0-9]+$", max_length=200)
    """The entry's id, unique in the run; part of a ConfigMap's key."""
    seq: int = Field(ge=0)
    """Position in the order of the run's changes, from 0."""
    act: str
    """The change, in words."""
    node: ObjectName | None
    undo: Undo
    expires: AwareDatetime
    settled: Cleanliness | None = None
    """The final state of the entry; None until the undo was verified by reading."""
    by: str = ""
    """The one that undid it: `flow`, `deadline` or `reaper`."""
    evidence: tuple[str, ...] = ()

    @property
    def object(self) -> str:
        """The changed object as `kind/name`."""
        if isinstance(self.undo, PackageUndo):
            return self.undo.object
        if isinstance(self.undo, DeletePod | TakeOutFault):
            return f"pod/{self.undo.pod}"
        if isinstance(self.undo, DeleteJob):
            return f"job/{self.undo.job}"
        if isinstance(self.undo, RestoreLab):
            return "lab/control-plane"
        if isinstance(self.undo, RestoreGpuClasses):
            return f"labels/{len(self.undo.set_to)} nodes"
        return f"node/{self.node}"

    def foreign_objects(self, run_id: str) -> list[str]:
        """Return the names that this entry would delete but no object of the run can have; empty if it is genuine."""
        match self.undo:
            case DeletePod(pod=name) | TakeOutFault(pod=name) | DeleteJob(job=name):
                return [] if name.startswith(object_prefix(run_id)) else [name]
            case PackageUndo() as undo:
                return undo.foreign_objects(run_id)
        return []


class Header(BaseModel):
    """The run that a ledger belongs to.

    Unknown fields are ignored, so that a reaper of an older version can read it.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    run_id: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)
    """The run's id, which is also a label of its pods."""
    plan: str
    started: AwareDatetime
    operator: str
    host: str
    flow_run: str | None = None
    """Prefect's id of the flow run for which the run's process was started; None outside Prefect."""

    @classmethod
    def of_this_process(cls, run_id: str, plan: str, started: datetime, flow_run: str | None) -> Self:
        """Return the header of a run in this process, with its user and its machine."""
        return cls(
            run_id=run_id,
            plan=plan,
            started=started,
            operator=getpass.getuser(),
            host=platform.node(),
            flow_run=flow_run,
        )
