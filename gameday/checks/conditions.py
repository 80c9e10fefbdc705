"""The conditions the plan names must say that something is wrong in time, and take it back after remediation."""

from __future__ import annotations

from gameday.checks.deadlines import Sighting, appears_within, as_expected, clears_within, since_fault
from gameday.checks.facts import target_nodes
from gameday.checks.verdict import Verdict
from gameday.history.events import ConditionSeen, NodeReplaced
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.expectations import ExpectedCondition
from gameday.plan.models import Plan

ORDER = 52


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    nodes = target_nodes(history)
    comes = [_comes(expected, history, node) for expected in plan.expect.conditions for node in nodes]
    if not plan.recover.gives_node_back:
        return comes
    clears = [_clears(one, history, node) for one in plan.expect.conditions for node in nodes if one.clears_within]
    return [*comes, *clears]


def sightings(expected: ExpectedCondition, history: History, node: str | None) -> list[Sighting]:
    """The condition as the plan wants it, oldest first, since the fault."""
    return as_expected(_of_type(expected, history, node))


def _comes(expected: ExpectedCondition, history: History, node: str | None) -> Verdict:
    reason = f" ({expected.reason})" if expected.reason else ""
    return appears_within(
        history,
        node,
        "condition-set",
        f"Condition {expected.type} of {node or 'the target'} becomes {expected.status}{reason}",
        expected.within,
        _of_type(expected, history, node),
    )


def _clears(expected: ExpectedCondition, history: History, node: str | None) -> Verdict:
    assert expected.clears_within is not None
    return clears_within(
        history,
        node,
        "condition-clears",
        f"Condition {expected.type} of {node or 'the target'} is {expected.status} no longer after remediation",
        expected.clears_within,
        sightings(expected, history, node),
        cleared(expected, history, node),
    )


def cleared(expected: ExpectedCondition, history: History, node: str | None) -> list[Sighting]:
    """Return the sightings since the fault in which the condition had another status, or was gone with its node."""
    found = [
        Sighting(record, seen.at, dated=seen.dated)
        for record, seen in history.with_times(ConditionSeen)
        if (seen.node, seen.condition) == (node, expected.type) and seen.status != expected.status
    ]
    found += [Sighting(record, seen.at) for record, seen in history.about(NodeReplaced, node)]
    return since_fault(history, node, found)


def _of_type(expected: ExpectedCondition, history: History, node: str | None) -> list[Sighting]:
    """The condition at the expected status; `amiss` names a reason that is not the one."""
    found = []
    for record, seen in history.with_times(ConditionSeen):
        if (seen.node, seen.condition, seen.status) == (node, expected.type, expected.status):
            other = expected.reason is not None and seen.reason != expected.reason
            amiss = f"reason {seen.reason or 'none'} instead" if other else ""
            found.append(Sighting(record, seen.at, amiss, seen.dated))
    return since_fault(history, node, found)
