"""The taints the plan names must be on the target node, with exactly their value and effect, in time."""

from __future__ import annotations

from gameday.checks.deadlines import Sighting, appears_within, as_expected
from gameday.checks.facts import target_nodes
from gameday.checks.verdict import Verdict
from gameday.history.events import TaintSeen
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.expectations import ExpectedTaint
from gameday.plan.models import Plan
from gameday.values.nodes import Taint

ORDER = 50


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    return [_set(taint, history, node) for taint in plan.expect.taints for node in target_nodes(history)]


def sightings(expected: ExpectedTaint, history: History, node: str | None) -> list[Sighting]:
    """The taint as the plan wants it, oldest first."""
    return as_expected(_of_key(expected, history, node))


def _set(expected: ExpectedTaint, history: History, node: str | None) -> Verdict:
    return appears_within(
        history,
        node,
        "taint-set",
        f"Taint {_wanted(expected)} is put on {node or 'the target'}",
        expected.within,
        _of_key(expected, history, node),
        absent=f"the taint on {node}",
    )


def _of_key(expected: ExpectedTaint, history: History, node: str | None) -> list[Sighting]:
    wanted = _wanted(expected)
    return [
        Sighting(record, seen.at, "" if seen.taint == wanted else f"the node carries {seen.taint} instead", seen.dated)
        for record, seen in history.about(TaintSeen, node)
        if seen.present and seen.taint.key == expected.key
    ]


def _wanted(expected: ExpectedTaint) -> Taint:
    return Taint(key=expected.key, value=expected.value, effect=str(expected.effect))
