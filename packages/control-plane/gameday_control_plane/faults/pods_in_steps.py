"""Pods in steps: one-GPU pods for the scheduler, by the device plugin's count, by NUMA zones or by claims (DRA)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import BaseModel, Field

from gameday.documents.percent import PartPercent
from gameday.errors import HostError
from gameday.faults.base import Evidence
from gameday.host.base import Host
from gameday.plan.fault import FaultParameters
from gameday.plan.rehearsal import TOPOLOGY_SCHEDULER
from gameday.values.nodes import NodeRole
from gameday_control_plane.api_clients.lists import LOAD_LABEL, NAMESPACE
from gameday_control_plane.api_clients.notes import PodsPlacedNote, PodStepNote
from gameday_control_plane.faults.base import ControlPlaneFault, LoadParameters
from gameday_control_plane.values.pod_steps import LOAD, Allocation, PodStep

if TYPE_CHECKING:
    from gameday_control_plane.api_clients.pods import PodLoad


class PodsInStepsParameters(LoadParameters):
    dangerous: ClassVar[str] = (
        "the pods take free GPUs, so that other work waits for them, and the scheduler is busy with them"
    )
    runs_on: ClassVar[NodeRole] = NodeRole.API_CLIENT

    type: Literal["pods_in_steps"] = "pods_in_steps"
    allocation: Allocation = Allocation.DEVICE_PLUGIN
    """nvidia.com/gpu, the same from a scheduler that knows NUMA zones, or a claim (`dra`)."""
    steps: tuple[Annotated[int, Field(ge=1, le=10_000)], ...] = Field(default=(50, 50), min_length=1, max_length=20)
    """Pods of each step; a step begins when all pods of the one before are bound."""
    rate: float = Field(default=50, gt=0, le=1000)
    """Pods created per second."""
    churn: PartPercent = 0.0
    """Share of all pods that a last step replaces, the oldest first."""
    patience: float = Field(default=60, gt=0, le=600)
    """Seconds to wait for a step's pods after its last creation."""
    pause: float = Field(default=6, ge=0, le=600)
    """Seconds without a creation after each step, so that a scrape sees its end."""
    scheduler_name: str = Field(default=TOPOLOGY_SCHEDULER, min_length=1, max_length=253, pattern=r"^[a-z0-9.-]+$")
    """`schedulerName` of topology-aware pods; the default is the lab's."""
    device_class: str = Field(default="gpu.gameday.dev", max_length=253, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")
    """DeviceClass of the claims; the default is the lab's."""


class PodsInStepsFault(ControlPlaneFault[PodsInStepsParameters]):
    """Creates one-GPU pods in namespace gameday-load, step by step, and notes how long each waits for its node.

    With `churn` the oldest pods are replaced at the end, at the same rate. If every GPU is taken, a pod waits until the
    one that it replaces is gone.

    A watch of the pods gives the times when each first appeared and was bound. At the end the objects show how many of
    these pods are on one node, whether two claims share a device, and for topology-aware pods whether a
    NodeResourceTopology zone has more GPUs in use than it has.
    """

    parameters: ClassVar[type[FaultParameters]] = PodsInStepsParameters
    summary: ClassVar[str] = "Creates one-GPU pods in steps, by count, by zones or by claims"
    does_not_reach: ClassVar[str] = "the GPUs and running pods; nodes without free GPUs"
    seen_by: ClassVar[tuple[str, ...]] = (
        "kube-scheduler's own metrics, and the controller-manager's for claims",
        "other pods that wait for a GPU",
    )

    def warnings(self, parameters: PodsInStepsParameters) -> tuple[str, ...]:
        return (f"{sum(parameters.steps)} pods ask for one GPU each at the same time",)

    def prior_state(self, parameters: PodsInStepsParameters, gpu: int, host: Host) -> dict[str, str]:
        if _load(parameters, host).exist():
            raise HostError(
                f"namespace {NAMESPACE} holds pods of another such load: `gameday reap` undoes the run that left them; "
                f"else kubectl -n {NAMESPACE} delete pods,resourceclaimtemplates -l {LOAD_LABEL}={LOAD}"
            )
        return {}

    def inject(self, parameters: PodsInStepsParameters, gpu: int, host: Host) -> Evidence:
        began_at = datetime.now(UTC)
        _load(parameters, host).prepare()
        return Evidence(lines=(f"before: namespace {NAMESPACE} held no such pods",), written_at=began_at)

    def hold_and_tell(
        self,
        parameters: PodsInStepsParameters,
        gpu: int,
        host: Host,
        ended: threading.Event,
        tell: Callable[[BaseModel], None],
    ) -> tuple[str, ...]:
        from gameday_control_plane.api_clients.pods import batches  # noqa: PLC0415 - httpx takes long to load

        load, lines = _load(parameters, host), list[str]()

        steps = batches(parameters.steps, parameters.churn)

        def tell_step(step: PodStep) -> None:
            tell(PodStepNote(step=step))
            p99 = "none" if step.p99_s is None else f"{step.p99_s:.2f} s"
            churned = f", in place of {step.deleted} deleted" if step.deleted else ""
            lines.append(
                f"step {step.step}: {step.bound} of {step.created} bound in {step.took_s:.1f} s, p99 {p99}{churned}"
            )

        load.make_in_steps(steps, parameters.rate, parameters.patience, parameters.pause, ended, tell_step)
        placed = load.placed(sum(parameters.steps))
        tell(PodsPlacedNote(placed=placed))
        return (*lines, f"{placed.bound} of {placed.wanted} pods have a node, at most {placed.most_on_a_node} the same")

    def undo(self, parameters: PodsInStepsParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        return Evidence(lines=(f"deleted {_load(parameters, host).delete()} pods from namespace {NAMESPACE}",))

    def verify_undone(
        self, parameters: PodsInStepsParameters, gpu: int, host: Host, undo_state: dict[str, str]
    ) -> bool:
        return not _load(parameters, host).exist()


def _load(parameters: PodsInStepsParameters, host: Host) -> PodLoad:
    from gameday_control_plane.api_clients.pods import PodLoad  # noqa: PLC0415 - httpx takes long to load

    return PodLoad(host.api_server(), parameters.allocation, parameters.device_class, parameters.scheduler_name)
