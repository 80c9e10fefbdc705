"""The kubelet must offer fewer GPUs in time, and as many as before after remediation, if the plan asks for it."""

from __future__ import annotations

from gameday.checks.deadlines import Sighting, appears_within, clears_within, since_fault
from gameday.checks.facts import target_nodes
from gameday.checks.node_diff import node_snapshot
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import AllocatableSeen, NodeReplaced
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.expectations import ExpectedAllocatable
from gameday.plan.models import Plan

ORDER = 56


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    expected = plan.expect.allocatable_falls
    if expected is None:
        return []
    nodes = target_nodes(history)
    falls = [_falls(expected, history, node) for node in nodes]
    if not plan.recover.gives_node_back:
        return falls
    return [*falls, *(_returns(expected, history, node) for node in nodes if expected.returns_within)]


def fallen(history: History, node: str | None) -> list[Sighting]:
    """Return the sightings of fewer GPUs than before the run, oldest first, since the fault."""
    return [one for one, fewer in _counts(history, node) if fewer]


def returned(history: History, node: str | None) -> list[Sighting]:
    """Return the sightings of as many GPUs as before the run, or more, since the fault."""
    return [one for one, fewer in _counts(history, node) if not fewer]


def _falls(expected: ExpectedAllocatable, history: History, node: str | None) -> Verdict:
    name = f"{node or 'The target'} offers fewer GPUs (allocatable nvidia.com/gpu)"
    verdict = appears_within(history, node, "allocatable-falls", name, expected.within, fallen(history, node))
    before = node_snapshot(history, node, "before")
    if verdict.status is Status.BROKEN and before is not None and before.allocatable_gpus is None:
        # The node offered no GPUs before the fault, so that their number cannot fall.
        return verdict.model_copy(update={"status": Status.UNKNOWN, "why": "the node never reported any GPU"})
    return verdict


def _returns(expected: ExpectedAllocatable, history: History, node: str | None) -> Verdict:
    assert expected.returns_within is not None
    name = f"{node or 'The target'} offers as many GPUs as before after remediation"
    came, gone = fallen(history, node), returned(history, node)
    return clears_within(history, node, "allocatable-returns", name, expected.returns_within, came, gone)


def _counts(history: History, node: str | None) -> list[tuple[Sighting, bool]]:
    """Every count since the fault, and whether it is lower than before the run; a node that is replaced loses none."""
    before = node_snapshot(history, node, "before")
    had = (before.allocatable_gpus if before else None) or 0
    found = [
        (Sighting(record, seen.at), (seen.gpus or 0) < had) for record, seen in history.about(AllocatableSeen, node)
    ]
    found += [(Sighting(record, seen.at), False) for record, seen in history.about(NodeReplaced, node)]
    recent = since_fault(history, node, [one for one, _ in found])
    return [(one, fewer) for one, fewer in found if one in recent]
