"""The target must be made unschedulable in time, if the plan asks for it; node-as-before judges whether it ends."""

from __future__ import annotations

from gameday.checks.deadlines import Sighting, appears_within, since_fault
from gameday.checks.facts import target_nodes
from gameday.checks.verdict import Verdict
from gameday.history.events import CordonSeen, StepStarted
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.values.results import Step

ORDER = 51


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    expected = plan.expect.cordoned
    if expected is None:
        return []
    return [
        appears_within(
            history,
            node,
            "cordoned",
            f"{node or 'The target'} is made unschedulable",
            expected.within,
            sightings(history, node),
        )
        for node in target_nodes(history)
    ]


def sightings(history: History, node: str | None) -> list[Sighting]:
    """Every time the node was cordoned since the fault, oldest first, until recovery: that cordons it itself."""
    recovers = [record.seq for record, begun in history.with_times(StepStarted) if begun.step is Step.RECOVER]
    found = [
        Sighting(record, seen.at, dated=seen.dated)
        for record, seen in history.with_times(CordonSeen)
        if seen.node == node and seen.cordoned and record.seq < min(recovers, default=record.seq + 1)
    ]
    return since_fault(history, node, found)
