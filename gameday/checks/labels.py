"""The labels the plan names must appear on the target in time; that they go again is part of node-as-before."""

from __future__ import annotations

from gameday.checks.deadlines import Sighting, appears_within, as_expected, since_fault
from gameday.checks.facts import target_nodes
from gameday.checks.verdict import Verdict
from gameday.history.events import LabelSeen
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.expectations import ExpectedLabel
from gameday.plan.models import Plan

ORDER = 53


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    return [_comes(label, history, node) for label in plan.expect.labels for node in target_nodes(history)]


def sightings(expected: ExpectedLabel, history: History, node: str | None) -> list[Sighting]:
    """The label as the plan wants it, oldest first, since the fault."""
    return as_expected(_of_key(expected, history, node))


def _comes(expected: ExpectedLabel, history: History, node: str | None) -> Verdict:
    value = "" if expected.value is None else f"={expected.value}"
    return appears_within(
        history,
        node,
        "label-set",
        f"Label {expected.key}{value} is put on {node or 'the target'}",
        expected.within,
        _of_key(expected, history, node),
    )


def _of_key(expected: ExpectedLabel, history: History, node: str | None) -> list[Sighting]:
    found = [
        Sighting(record, seen.at, amiss, seen.dated)
        for record, seen in history.with_times(LabelSeen)
        if (seen.node, seen.label) == (node, expected.key) and seen.value is not None
        for amiss in ("" if expected.value in (None, seen.value) else f"{seen.label}={seen.value} instead",)
    ]
    return since_fault(history, node, found)
