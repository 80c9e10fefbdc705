"""The alerts the plan names must fire for the target node in time and resolve in time; the fault may set off no
others."""

from __future__ import annotations

from gameday.checks.facts import (
    absence,
    at_most,
    bounded,
    injected,
    remediation_end,
    seconds_text,
    some,
    stopped_because,
    target_nodes,
    unnamed_alerts,
)
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import AlertSeen, Record, RunEnded, Step
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import ExpectedAlert, Plan

ORDER = 30

Seen = tuple[Record, AlertSeen]


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    nodes = target_nodes(history)
    fires = [_fires(alert, history, node) for alert in plan.expect.alerts for node in nodes]
    resolves = [_resolves(alert, history, node) for alert in plan.expect.alerts for node in nodes]
    return [*fires, *_no_others(plan, history), *resolves]


def sightings(history: History, alert: str, node: str | None, state: str) -> list[Seen]:
    """The alert in this state for this node, oldest first, without what was there before the fault."""
    return [
        (record, seen)
        for record, seen in history.about(AlertSeen, node)
        if (seen.alert, seen.state) == (alert, state) and not seen.at_baseline
    ]


def endings(history: History, alert: str, node: str | None) -> list[Seen | None]:
    """For each label set of the alert that fired, what ended its last firing; None for one that fires still.

    An alert may flap: only what no later firing takes back is an end. A set that is pending again does not fire.
    """
    lives: dict[str, list[Seen]] = {}
    for record, seen in history.about(AlertSeen, node):
        if seen.alert == alert and not seen.at_baseline:
            lives.setdefault(seen.label_set, []).append((record, seen))
    found: list[Seen | None] = []
    for life in lives.values():
        if firing := [place for place, (_, seen) in enumerate(life) if seen.state == "firing"]:
            found.append(next(iter(life[firing[-1] + 1 :]), None))
    return found


def label_gaps(expected: ExpectedAlert, labels: dict[str, str]) -> list[str]:
    """Each expected label that is missing or different, as a phrase."""
    return [
        f"label {name} is {labels[name]!r}, not {wanted!r}" if name in labels else f"label {name} is missing"
        for name, wanted in sorted(expected.labels.items())
        if labels.get(name) != wanted
    ]


def _fires(expected: ExpectedAlert, history: History, node: str | None) -> Verdict:
    fault = injected(history, node)
    seen = sightings(history, expected.name, expected.about(node), "firing")
    matching = [(r, e) for r, e in seen if not label_gaps(expected, e.labels)]
    status, why, seconds = Status.UNKNOWN, "", None
    if fault is None:
        why = f"not reached: {stopped_because(history)}"
    elif matching:
        status, seconds, why = bounded(fault[1].written_at, matching[0][1].at, expected.within)
    elif seen:
        status, why = Status.BROKEN, "fired, but " + ", ".join(label_gaps(expected, seen[0][1].labels))
    else:
        status, why = absence(history, Step.AWAIT_ALERT, f"{expected.name} firing for {node}")
    return Verdict(
        check="alert-fires",
        expectation=f"Alert {expected.name} fires for {_whom(expected, node)}",
        bound=at_most(expected.within),
        measured="" if seconds is None else seconds_text(seconds),
        status=status,
        why=why,
        seconds=seconds,
        evidence=tuple(record.seq for record, _ in (matching or seen)[:1]) + ((fault[0].seq,) if fault else ()),
        node=node,
    )


def _whom(expected: ExpectedAlert, node: str | None) -> str:
    return "the cluster" if expected.of == "cluster" else node or "the target"


def _resolves(expected: ExpectedAlert, history: History, node: str | None) -> Verdict:
    start = remediation_end(history, node)
    ends = endings(history, expected.name, expected.about(node))
    ended = sorted((end for end in ends if end), key=lambda end: end[1].at)
    status, why, seconds = Status.UNKNOWN, "", None
    if not ends:
        why = "not reached: the alert was not seen firing"
    elif start is None:
        why = f"not reached: {stopped_because(history)}"
    elif len(ended) == len(ends):
        slowest = ended[-1][1].at
        status, seconds, why = bounded(start.at, max(slowest, start.at), expected.resolves_within)
        why = "resolved before remediation had ended" if slowest < start.at else why
    else:
        status, why = absence(history, Step.RECOVER, f"{expected.name} resolving for {node}")
        if ended:
            why = f"{len(ends) - len(ended)} of its {len(ends)} label sets did not resolve: {why}"
    return Verdict(
        check="alert-resolves",
        expectation=f"Alert {expected.name} resolves for {_whom(expected, node)} after remediation",
        bound=at_most(expected.resolves_within),
        measured="" if seconds is None else seconds_text(seconds),
        status=status,
        why=why,
        seconds=seconds,
        evidence=tuple(record.seq for record, _ in ended[-1:]) + ((start.seq,) if start else ()),
        node=node,
    )


def _no_others(plan: Plan, history: History) -> list[Verdict]:
    if plan.expect.allow_other_alerts:
        return []
    others, background = unnamed_alerts(history)
    names = _named(others)
    status, why = Status.BROKEN, ", ".join(names)
    if not others:
        status, why = absence(history, Step.AWAIT_ALERT, "the window's end")
        if status is Status.BROKEN:  # the step could see, and saw none: that is what was hoped for
            status, why = Status.HELD, ""
        if status is Status.HELD and history.last(RunEnded) is None:
            status, why = Status.UNKNOWN, "the run was cut off, so the window was not watched to its end"
    return [
        Verdict(
            check="no-other-alerts",
            expectation="The fault sets off no alert that the plan does not name",
            bound="0 alerts",
            measured="" if status is Status.UNKNOWN else _counted(names) + _beside(_named(background)),
            status=status,
            why=why,
            evidence=tuple(record.seq for record, _ in others),
        )
    ]


def _named(alerts: list[Seen]) -> list[str]:
    return sorted({f"{seen.alert} ({seen.node or 'no node'})" for _, seen in alerts})


def _counted(names: list[str]) -> str:
    return f"{len(names)} alert{'' if len(names) == 1 else 's'}"


def _beside(names: list[str]) -> str:
    return f"; beside it {_counted(names)} of other origin: {some(names)}" if names else ""
