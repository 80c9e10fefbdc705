"""The plan's alerts must fire for the target node in time and resolve in time; the fault may set off no others."""

from __future__ import annotations

from gameday.checks.deadlines import ClearingWords, appears_within, as_expected, ends_within
from gameday.checks.facts import (
    first_few,
    judge_absence,
    not_yet,
    target_nodes,
    unnamed_alerts,
    why_alerts_may_be_missing,
)
from gameday.checks.verdict import Status, Verdict
from gameday.expect.alerts import ExpectedAlert
from gameday.expect.base import Sighting
from gameday.history.events import AlertSeen, Record, RunEnded
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.values.alert_families import (
    FAULTY_TAINT,
    fires_until_returned,
    is_about_the_node,
    is_set_off_by_detector,
)
from gameday.values.results import Step

ORDER = 30

Seen = tuple[Record, AlertSeen]


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    nodes = target_nodes(history)
    fires = [_fires(alert, history, node) for alert in plan.expect.alerts for node in nodes]
    # Nobody ends the fault of a node that is to stay out of service.
    expected = plan.expect.alerts if plan.recover.gives_node_back else ()
    resolves = [_resolves(plan, alert, history, node) for alert in expected for node in nodes]
    return [*fires, *_no_others(plan, history), *resolves]


def first_firing(history: History, expected: ExpectedAlert, node: str | None) -> Sighting | None:
    """Return the first firing that is as the plan wants; if there is none, the first that is not."""
    seen = _firings(history, expected, node)
    return next(iter((*as_expected(seen), *seen)), None)


def endings(history: History, alert: str, node: str | None) -> list[Seen | None]:
    """Return the end of the last firing of each label set of the alert; None for one that still fires.

    An alert may flap, so an end counts only if the label set does not fire again; a set that is pending does not fire.
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
    """Return a phrase for each expected label that is missing or has another value."""
    return [
        f"label {name} is {labels[name]!r}, not {wanted!r}" if name in labels else f"label {name} is missing"
        for name, wanted in sorted(expected.labels.items())
        if labels.get(name) != wanted
    ]


def _fires(expected: ExpectedAlert, history: History, node: str | None) -> Verdict:
    firings = _firings(history, expected, node)
    verdict = appears_within(
        history,
        node,
        "alert-fires",
        f"Alert {expected.name} fires for {_whom(expected, node)}",
        expected.within,
        firings,
        awaited_by=Step.AWAIT_ALERT,
        absent=f"{expected.name} firing for {node}",
        by_detector=is_set_off_by_detector(expected.name),
    )
    if verdict.status is Status.BROKEN and not firings and (why := why_alerts_may_be_missing(history)):
        return verdict.model_copy(update={"status": Status.UNKNOWN, "why": why})
    return verdict


def _firings(history: History, expected: ExpectedAlert, node: str | None) -> list[Sighting]:
    """Return the alert's firings, oldest first, without those from before the fault."""
    return [
        Sighting(record, seen.at, "fired, but " + ", ".join(gaps) if gaps else "", seen.dated)
        for record, seen in history.about(AlertSeen, expected.about(node))
        if (seen.alert, seen.state) == (expected.name, "firing") and not seen.at_baseline
        for gaps in (label_gaps(expected, seen.labels),)
    ]


def _whom(expected: ExpectedAlert, node: str | None) -> str:
    return "the cluster" if expected.of == "cluster" else node or "the target"


def _resolves(plan: Plan, expected: ExpectedAlert, history: History, node: str | None) -> Verdict:
    """Judge whether the alert resolved in time. All of its label sets must, so the slowest counts.

    An alert about the quarantine can resolve only once the node is back in service.
    """
    by_return = fires_until_returned(expected.name) and not plan.recover.is_hands_off
    after, begin = ("its return", "its return") if by_return else ("remediation", "remediation had ended")
    sets = endings(history, expected.name, expected.about(node))
    found = (Sighting(record, seen.at, dated=seen.dated) for record, seen in filter(None, sets))
    ended = sorted(found, key=lambda one: one.at)
    left = len(sets) - len(ended)
    words = ClearingWords("the alert was not seen firing", "resolved", f"{expected.name} resolving for {node}", begin)
    return ends_within(
        history,
        node,
        "alert-resolves",
        f"Alert {expected.name} resolves for {_whom(expected, node)} after {after}",
        expected.resolves_within,
        ended[-1] if ended else None,
        came=bool(sets),
        still=f"{left} of its {len(sets)} label sets did not resolve" if ended and left else "",
        words=words,
        until=Step.QA_NODE if by_return else Step.RECOVER,
    )


def _no_others(plan: Plan, history: History) -> list[Verdict]:
    if plan.expect.allow_other_alerts:
        return []
    others, background = unnamed_alerts(history)
    same = [one for one in others if _says_what_is_expected(plan, one[1].alert)]
    others, background = [one for one in others if one not in same], [*background, *same]
    names = _named(others)
    status, why = Status.BROKEN, ", ".join(names)
    if not others:
        status, why = judge_absence(history, Step.AWAIT_ALERT, "the window's end")
        if status is Status.BROKEN:  # the step could see alerts and saw none, as the plan expects
            status, why = Status.HELD, ""
        if status is Status.HELD and history.last(RunEnded) is None:
            status, why = Status.UNKNOWN, not_yet(history, "before the window had been watched to its end")
        if status is Status.HELD and (missing := why_alerts_may_be_missing(history)):
            status, why = Status.UNKNOWN, missing
    return [
        Verdict(
            check="no-other-alerts",
            expectation="The fault sets off no alert that the plan does not name",
            bound="0 alerts",
            measured="" if status is Status.UNKNOWN else _counted(names) + _beside(_named(background)),
            status=status,
            step=Step.AWAIT_ALERT,
            why=why,
            evidence=tuple(record.seq for record, _ in others),
        )
    ]


def _says_what_is_expected(plan: Plan, alert: str) -> bool:
    """Return True if the alert only shows a quarantine or condition that the plan expects of the detector."""
    expect = plan.expect
    quarantine = any(taint.key == FAULTY_TAINT for taint in expect.taints)
    return is_about_the_node(alert) and (quarantine if fires_until_returned(alert) else bool(expect.conditions))


def _named(alerts: list[Seen]) -> list[str]:
    return sorted({f"{seen.alert} ({seen.node or 'no node'})" for _, seen in alerts})


def _counted(names: list[str]) -> str:
    return f"{len(names)} alert{'' if len(names) == 1 else 's'}"


def _beside(names: list[str]) -> str:
    return f"; beside it {_counted(names)} of other origin: {first_few(names)}" if names else ""
