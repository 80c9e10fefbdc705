"""Wait for what detectors write about a target (conditions, labels, cordon, Events, GPU counts), and for its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Protocol

from gameday.checks import allocatable, conditions, cordon, kube_events, labels
from gameday.checks.deadlines import Sighting
from gameday.documents.fields import format_duration
from gameday.history.events import SignalUnwatched
from gameday.history.journal import History
from gameday.observe.deadline import await_in_time
from gameday.plan.models import ExpectedCondition
from gameday.run.run import Run
from gameday.run.steps import StepResult
from gameday.values.nodes import NodeSnapshot


class Sightings(Protocol):
    """What finds in a history where something was seen of a node."""

    def __call__(self, history: History, node: str) -> Sequence[Sighting]: ...


def already_there(run: Run, seen: NodeSnapshot) -> list[str]:
    """What the plan expects of the fault and the node shows before it: it could not tell the two apart."""
    expect = run.plan.expect
    found = [
        f"condition {one.type} is already {one.status}"
        for one in expect.conditions
        if seen.conditions.get(one.type) == one.status
    ]
    return found + [
        f"label {one.key} is already {seen.labels[one.key]}"
        for one in expect.labels
        if one.key in seen.labels and one.value in (None, seen.labels[one.key])
    ]


def await_cordon(run: Run, result: StepResult, node: str) -> bool:
    """Whether the node was cordoned, or need not be; too late breaks the step."""
    expected = run.plan.expect.cordoned
    if expected is None:
        return True

    cordons = partial(cordon.sightings, node=node)
    return await_in_time(run, result, f"the cordon of {node}", expected.within, node, cordons)


def await_signals(run: Run, result: StepResult, node: str) -> None:
    """Each expected condition, label, Event and fall of the GPU count, within its bound."""
    unwatched = {one.signal: one.why for one in run.journal.history().of(SignalUnwatched) if one.node == node}
    for what, within, sightings, signal in _awaited(run):
        if signal in unwatched:
            result.unknown(f"{what} of {node}: {unwatched[signal]}")
        else:
            await_in_time(run, result, f"{what} of {node}", within, node, partial(sightings, node=node))


def signal_bounds(run: Run) -> list[timedelta]:
    """How long `await_signals` may wait for each."""
    return [within for _, within, _, _ in _awaited(run)]


def _awaited(run: Run) -> Iterator[tuple[str, timedelta, Sightings, str]]:
    """What to wait for: in words, its bound, what finds it in a history, and which watch shows it."""
    expect = run.plan.expect
    for condition in expect.conditions:
        what = f"condition {condition.type}={condition.status}"
        yield what, condition.within, partial(conditions.sightings, condition), "nodes"
    for label in expect.labels:
        yield f"label {label.key}", label.within, partial(labels.sightings, label), "nodes"
    for event in expect.events:
        yield f"Event {event.reason}", event.within, partial(kube_events.sightings, event), "events"
    if expect.allocatable_falls:
        yield "a lower GPU count", expect.allocatable_falls.within, allocatable.fallen, "nodes"


def await_cleared(run: Run, result: StepResult, node: str) -> None:
    """Conditions that came and the GPU count, back to what they were; begins when the remediation has ended."""
    expect, history = run.plan.expect, run.journal.history()
    for one in expect.conditions:
        if one.clears_within and conditions.sightings(one, history, node):
            what = f"condition {one.type} of {node} to clear"
            _await_end(run, result, what, one.clears_within, node, partial(_is_clear, one))
    falls = expect.allocatable_falls
    if falls and falls.returns_within and allocatable.fallen(history, node):
        had = run.before[node].allocatable_gpus
        what = f"the GPUs of {node} to be offered again"
        _await_end(run, result, what, falls.returns_within, node, lambda now: now.allocatable_gpus == had)


def _await_end(
    run: Run, result: StepResult, what: str, within: timedelta, node: str, over: Callable[[NodeSnapshot], bool]
) -> None:
    def ended() -> bool | None:
        now = run.node_now(node)
        return (now is not None and over(now)) or None

    if not run.wait(what, within, ended):
        result.broken(f"waited {format_duration(within)} for {what}, in vain")


def _is_clear(expected: ExpectedCondition, now: NodeSnapshot) -> bool:
    return now.conditions.get(expected.type) != expected.status
