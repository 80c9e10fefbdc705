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
from gameday.observe.deadline import await_within
from gameday.observe.injected_fault import InjectedFault
from gameday.plan.expectations import ExpectedCondition
from gameday.run.run import Run
from gameday.run.steps import StepResult
from gameday.run.targets import ChosenTarget
from gameday.values.nodes import NodeSnapshot


class Sightings(Protocol):
    """A function that finds in a history when something was seen of a node."""

    def __call__(self, history: History, node: str) -> Sequence[Sighting]: ...


def signals_before_fault(run: Run, seen: NodeSnapshot) -> list[str]:
    """Return the signals that the plan expects of the fault and that the node shows before it."""
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


def await_cordon(run: Run, result: StepResult, fault: InjectedFault) -> bool:
    """Wait for the expected cordon; return True where it came or none is expected. A late one breaks the step."""
    expected = run.plan.expect.cordoned
    if expected is None:
        return True
    cordons = partial(cordon.sightings, node=fault.node)
    return await_within(run, result, f"the cordon of {fault.node}", expected.within, fault, cordons)


def await_signals(run: Run, result: StepResult, fault: InjectedFault) -> None:
    """Wait for each expected condition, label, Event and fall of the GPU count, within its bound."""
    node = fault.node
    unwatched = {one.signal: one.why for one in run.history().of(SignalUnwatched) if one.node == node}
    for what, bound, sightings, signal in _awaited(run):
        if signal in unwatched:
            result.mark_unknown(f"{what} of {node}: {unwatched[signal]}")
        else:
            await_within(run, result, f"{what} of {node}", bound, fault, partial(sightings, node=node))


def signal_bounds(run: Run) -> list[timedelta]:
    """Return how long `await_signals` may wait for each signal."""
    return [bound for _, bound, _, _ in _awaited(run)]


def _awaited(run: Run) -> Iterator[tuple[str, timedelta, Sightings, str]]:
    """Yield for each expected signal its name, its bound, its finder in a history, and the watch that shows it."""
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


def await_cleared(run: Run, result: StepResult, target: ChosenTarget) -> None:
    """Wait after the remediation until conditions that came are gone, and the GPU count is back."""
    expect, history, node = run.plan.expect, run.history(), target.node
    for one in expect.conditions:
        if one.clears_within and conditions.sightings(one, history, node):
            what = f"condition {one.type} of {node} to clear"
            _await_end(run, result, what, one.clears_within, node, partial(_is_clear, one))
    falls = expect.allocatable_falls
    if falls and falls.returns_within and allocatable.fallen(history, node):
        had = target.before.allocatable_gpus
        what = f"the GPUs of {node} to be offered again"
        _await_end(run, result, what, falls.returns_within, node, lambda now: now.allocatable_gpus == had)


def _await_end(
    run: Run, result: StepResult, what: str, timeout: timedelta, node: str, is_over: Callable[[NodeSnapshot], bool]
) -> None:
    def ended() -> bool | None:
        now = run.nodes.now(node)
        return (now is not None and is_over(now)) or None

    if not run.wait(what, timeout, ended):
        result.mark_broken(f"waited {format_duration(timeout)} in vain for {what}")


def _is_clear(expected: ExpectedCondition, now: NodeSnapshot) -> bool:
    return now.conditions.get(expected.type) != expected.status
