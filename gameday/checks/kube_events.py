"""The Kubernetes Events the plan names must be written about the target in time, by their own time stamps."""

from __future__ import annotations

from gameday.checks.deadlines import Sighting, appears_within, as_expected, since_fault
from gameday.checks.facts import target_nodes
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import KubernetesEventSeen, SignalUnwatched
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.expectations import ExpectedEvent
from gameday.plan.models import Plan

ORDER = 54


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    return [_comes(event, history, node) for event in plan.expect.events for node in target_nodes(history)]


def sightings(expected: ExpectedEvent, history: History, node: str | None) -> list[Sighting]:
    """The Event as the plan wants it, oldest first, since the fault."""
    return as_expected(_of_reason(expected, history, node))


def _comes(expected: ExpectedEvent, history: History, node: str | None) -> Verdict:
    verdict = appears_within(
        history,
        node,
        "event-written",
        f"Event {expected.reason} is written about {node or 'the target'}",
        expected.within,
        _of_reason(expected, history, node),
    )
    unwatched = [one for one in history.of(SignalUnwatched) if (one.signal, one.node) == ("events", node)]
    if unwatched and verdict.status is Status.BROKEN:
        return verdict.model_copy(update={"status": Status.UNKNOWN, "why": unwatched[0].why})
    return verdict


def _of_reason(expected: ExpectedEvent, history: History, node: str | None) -> list[Sighting]:
    found = [
        Sighting(record, seen.at, amiss, seen.dated)
        for record, seen in history.with_times(KubernetesEventSeen)
        if (seen.node, seen.reason) == (node, expected.reason)
        for amiss in ("" if expected.type in (None, seen.type) else f"one of type {seen.type} instead",)
    ]
    return since_fault(history, node, found)
