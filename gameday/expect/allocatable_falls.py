"""The kubelet must offer fewer GPUs, and as many as before after the remediation if the plan asks for it."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from gameday.documents.fields import Bound
from gameday.expect.base import Expectation, Sighting, Signal, since_fault
from gameday.history.events import AllocatableSeen, NodeReplaced, NodeSeen
from gameday.history.journal import History
from gameday.values.nodes import NodeRole, NodeSnapshot


class ExpectedAllocatable(Signal):
    """A fall of the GPUs that the kubelet offers, which must be over after the recovery."""

    check: ClassVar = "allocatable-falls"
    ends_check: ClassVar = "allocatable-returns"
    ends_by: ClassVar = "returns_within"

    within: Bound
    """Longest time from the fault going in until `status.allocatable` is lower."""
    returns_within: Bound | None = timedelta(minutes=5)
    """Longest time from the end of the remediation until as many GPUs are offered as before; null: a person brings them
    back."""

    def __str__(self) -> str:
        return "fewer GPUs offered"

    def comes(self, node: str) -> str:
        return f"{node} offers fewer GPUs (allocatable nvidia.com/gpu)"

    def ends(self, node: str) -> str:
        return f"{node} offers as many GPUs as before after remediation"

    def awaited(self, node: str) -> str:
        return f"a lower GPU count of {node}"

    def awaited_end(self, node: str) -> str:
        return f"the GPUs of {node} to be offered again"

    def seen(self, history: History, node: str | None) -> list[Sighting]:
        had = _had(history, node)
        found = [Sighting(record, one.at) for record, one in history.about(AllocatableSeen, node)
                 if (one.gpus or 0) < had]  # fmt: skip
        return since_fault(history, node, found)

    def gone(self, history: History, node: str | None) -> list[Sighting]:
        """Return the sightings of at least as many GPUs as before the run; a node that is replaced loses none."""
        had = _had(history, node)
        found = [Sighting(record, one.at) for record, one in history.about(AllocatableSeen, node)
                 if (one.gpus or 0) >= had]  # fmt: skip
        found += [Sighting(record, one.at) for record, one in history.about(NodeReplaced, node)]
        return since_fault(history, node, found)

    def why_unproved(self, history: History, node: str | None) -> str:
        before = _before(history, node)
        return "the node never reported any GPU" if before and before.allocatable_gpus is None else ""


def _before(history: History, node: str | None) -> NodeSnapshot | None:
    seen = (one.snapshot for _, one in history.about(NodeSeen, node) if one.phase == "before")
    return next(seen, None)


def _had(history: History, node: str | None) -> int:
    """Return how many GPUs the node offered before the run."""
    before = _before(history, node)
    return (before.allocatable_gpus if before else None) or 0


class AllocatableFalls(Expectation):
    order: ClassVar = 56
    needs: ClassVar = NodeRole.GPU

    allocatable_falls: ExpectedAllocatable | None = None
    """The kubelet must offer fewer GPUs on the target."""
