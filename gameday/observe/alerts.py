"""Note alerts in the history, once per label set and state, with the node that they name."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeGuard

from gameday.cluster.alertmanager import Matcher
from gameday.cluster.prometheus import ActiveAlert, Series
from gameday.errors import AdapterError
from gameday.expect.alerts import ExpectedAlert
from gameday.history.events import AlertSeen, FaultInjected
from gameday.history.journal import History
from gameday.run.run import ReadOnlyRun, Run
from gameday.run.steps import StepResult
from gameday.values.dated import Dated
from gameday.values.results import Hop

# An alert that fired earlier than this was firing at baseline already, so its exact time does not matter.
_LOOK_BACK = timedelta(minutes=15)
_POLL_S = 0.5
_FIRED, _FIRED_LAST = "rule fired", "the last evaluation that fired"
_LONGEST_ANNOTATION = 4096
"""Characters of an annotation that a history keeps. The shipped rules' longest has some 500."""


def node_of(run: ReadOnlyRun, labels: Mapping[str, str]) -> str | None:
    """Return the node that the labels of an alert or series name, by the profile's mapping; None if they name none."""
    profile = run.profile
    return labels.get(profile.alert_node_label) or labels.get(profile.prometheus_node_label)


def active_alerts(history: History) -> dict[str, AlertSeen]:
    """Return by label set the alerts that were active when Prometheus was last asked."""
    last = {seen.label_set: seen for seen in history.of(AlertSeen)}
    return {labels: seen for labels, seen in last.items() if seen.state != "resolved"}


def note_active_alerts(run: Run, nodes: Collection[str], *, at_baseline: bool = False) -> list[AlertSeen]:
    """Note new states and ended alerts; return the alerts that fire now, and those pending for a target.

    Pending alerts about no target are not noted, because on a large fleet there is always one that never fires; nor are
    alerts that the season's other runs set off.

    Args:
        run: The run.
        nodes: Its targets.
        at_baseline: Nothing is injected yet, so the alerts are not blamed on the run.

    Raises:
        AdapterError: Prometheus cannot be asked.
    """
    expected_names, known_by_labels = expected_alerts(run, nodes), active_alerts(run.history())
    active: dict[str, AlertSeen] = {}
    asked_at = run.clock.now()
    for alert in run.servers.prometheus.alerts():
        key = json.dumps(alert.labels, sort_keys=True)
        known = known_by_labels.get(key)
        node = node_of(run, alert.labels)
        expected = (alert.name, node) in expected_names
        if (alert.state == "pending" and node not in nodes and not expected) or siblings_alert(run, alert.name, node):
            continue
        dated = None
        if alert.state == "firing":
            dated = known.dated if _fires(known) else _dated(run, alert, expected=expected)
        active[key] = AlertSeen(
            alert=alert.name,
            state=alert.state,
            labels=alert.labels,
            annotations={key: _shortened(value) for key, value in alert.annotations.items()},
            node=node,
            expected=expected,
            at=dated.latest if dated else known.at if _fires(known) else alert.active_at,
            dated=dated,
            since=alert.active_at,
            at_baseline=at_baseline or (known is not None and known.at_baseline),
            background=is_background(run, alert.name, node),
            receivers=known.receivers if known else (),
            silenced=known.silenced if known else False,
            inhibited=known.inhibited if known else False,
        )
        if known is None or known.state != alert.state:
            run.note(active[key])
    for key, ended in known_by_labels.items():
        if key not in active:
            dated = _dated_end(run, ended)
            run.note(ended.model_copy(update={"state": "resolved", "at": dated.latest, "dated": dated}))
    run.chain.alerts_were_noted(asked_at)
    return list(active.values())


def await_resolved(run: Run, result: StepResult, expected: ExpectedAlert, node: str, nodes: Collection[str]) -> None:
    """Wait until the alert no longer fires for a target; if it fires beyond its bound, the step is broken.

    Args:
        run: The run.
        result: Receives the finding.
        expected: The alert, with its bound.
        node: The target.
        nodes: All targets of the run.
    """

    def silent() -> bool | None:
        active = note_active_alerts(run, nodes)
        about = expected.about(node)
        return None if any(seen.alert == expected.name and seen.node == about for seen in active) else True

    try:
        resolved = run.wait(
            f"alert {expected.name} resolved for {node}", expected.resolves_within, silent, every_s=_POLL_S
        )
    except AdapterError as error:
        run.problem(f"Prometheus could not be asked whether {expected.name} is resolved: {error}")
        result.mark_unknown(f"{expected.name}: {error}")
        return
    if not resolved:
        bound = expected.resolves_within.total_seconds()
        result.mark_broken(f"{expected.name} is still active for {node} after {bound:g} s")


def note_missed_alerts(run: Run, nodes: Collection[str], series: list[Series]) -> None:
    """Note alerts that fired and ended between two looks, but that Prometheus stored as firing.

    Args:
        run: The run.
        nodes: Its targets.
        series: Stored samples of ALERTS.

    Raises:
        AdapterError: Prometheus cannot be asked.
    """
    history = run.history()
    known = {seen.label_set for seen in history.of(AlertSeen) if seen.state == "firing"}
    at_baseline = {seen.label_set for seen in history.of(AlertSeen) if seen.at_baseline}
    injected = min((f.written_at for f in history.of(FaultInjected)), default=run.clock.now())
    expected_names, missed = expected_alerts(run, nodes), []
    for one in series:
        labels = {key: value for key, value in one.labels.items() if key != "alertstate"}
        label_set = json.dumps(labels, sort_keys=True)
        if one.labels.get("alertstate") != "firing" or not one.points or label_set in known:
            continue
        if siblings_alert(run, labels.get("alertname", ""), node_of(run, labels)):
            continue
        name, node = labels.get("alertname", ""), node_of(run, labels)
        first, last = one.points[0][0], one.points[-1][0]
        expected = (name, node) in expected_names
        every_s, now = _rule(run, name).every_s if expected else 0.0, run.clock.now()
        looked_at = run.chain.last_asked(first, last)  # it would have shown the alert, were both clocks right
        dated = Dated(own=first, source=_FIRED, every_s=every_s, absent_at=looked_at, seen_at=now)
        end = Dated(own=last, source=_FIRED_LAST, open_s=every_s, seen_at=now)
        seen = AlertSeen(
            alert=name,
            state="firing",
            labels=labels,
            node=node,
            expected=expected,
            at=dated.latest,
            dated=dated,
            at_baseline=first < injected or label_set in at_baseline,
            background=is_background(run, name, node),
        )
        missed.append((seen, end))
    active = {json.dumps(alert.labels, sort_keys=True) for alert in run.servers.prometheus.alerts()} if missed else ()
    for seen, end in missed:
        run.note(seen)
        if seen.label_set not in active:
            run.note(seen.model_copy(update={"state": "resolved", "at": end.latest, "dated": end}))


def expected_alerts(run: Run, nodes: Collection[str]) -> set[tuple[str, str | None]]:
    """Return name and node of every alert that the plan expects; the node is None for an alert of the cluster."""
    return {(expected.name, expected.about(node)) for expected in run.plan.expect.alerts for node in nodes}


def is_background(run: Run, alert: str, node: str | None) -> bool:
    """Return True for an alert without a node that, by the profile, comes and goes independently of game-days."""
    return node is None and alert in run.profile.background_alerts


def siblings_alert(run: Run, alert: str, node: str | None) -> bool:
    """Return True if another run of the same season may have set the alert off."""
    return run.member is not None and run.member.is_siblings_alert(alert, node)


def _shortened(annotation: str) -> str:
    if len(annotation) <= _LONGEST_ANNOTATION:
        return annotation
    return f"{annotation[:_LONGEST_ANNOTATION]}… (cut: it has {len(annotation):,} characters)"


def _fires(known: AlertSeen | None) -> TypeGuard[AlertSeen]:
    return known is not None and known.state == "firing"


def _dated(run: Run, alert: ActiveAlert, *, expected: bool) -> Dated:
    """Return when an alert fired: at the first evaluation that Prometheus stored as firing, earlier than the look.

    If it stored none, at the first evaluation after `for` had passed since activeAt, as Prometheus itself decides it.
    """
    now, rule = run.clock.now(), _rule(run, alert.name) if expected else _Rule()
    # It may have fired earlier for another reason: only this activation counts.
    own = min((at for at in _stored(run, alert.labels, now) if at >= alert.active_at), default=None)
    if own is None and rule.every_s:
        own = alert.active_at + timedelta(seconds=math.ceil(rule.hold_s / rule.every_s) * rule.every_s)
    asked_at = run.chain.last_asked()
    return Dated(own=own, source=_FIRED, every_s=rule.every_s, absent_at=asked_at, seen_at=now)


def _dated_end(run: Run, ended: AlertSeen) -> Dated:
    """Return when an alert ended: at the evaluation after the last one that Prometheus stored as firing."""
    now, own, open_s = run.clock.now(), None, 0.0
    if ended.expected and _fires(ended):
        open_s = _rule(run, ended.alert).every_s
        own = max((at for at in _stored(run, ended.labels, now) if at >= ended.at), default=None)
    return Dated(own=own, source=_FIRED_LAST, open_s=open_s, absent_at=run.chain.last_asked(), seen_at=now)


def _stored(run: Run, labels: Mapping[str, str], now: datetime) -> list[datetime]:
    """Return the times of the evaluations that Prometheus stored as firing for a label set."""
    selector = f'ALERTS{{alertname={json.dumps(labels.get("alertname", ""))},alertstate="firing"}}'
    series = run.servers.prometheus.stored_samples(selector, _LOOK_BACK, now)
    ours = (one for one in series if {k: v for k, v in one.labels.items() if k != "alertstate"} == labels)
    return [at for one in ours for at, _ in one.points]


@dataclass(frozen=True)
class _Rule:
    """The pace of an alerting rule in seconds; 0 means none or unknown."""

    every_s: float = 0.0
    hold_s: float = 0.0


def _rule(run: Run, alert: str) -> _Rule:
    """Return the pace of an alert's rule; the slowest if several rules share the name."""
    groups = run.servers.prometheus.rule_groups()
    found = [(group.interval_s, rule.hold_s) for group in groups for rule in group.rules if rule.name == alert]
    return _Rule(*max(found, default=(0.0, 0.0)))


def note_notified(run: Run, expected: ExpectedAlert, node: str) -> bool:
    """Return True if Alertmanager holds the alert expected of this target, and note its receivers.

    The first alert that nothing mutes is a hop of the chain; one that is silenced or inhibited reaches nobody.

    Raises:
        AdapterError: Alertmanager cannot be asked.
    """
    held = run.servers.alertmanager.alerts([Matcher(name="alertname", value=expected.name)])
    ours = [one for one in held if node_of(run, one.labels) == expected.about(node)]
    sent = [one for one in ours if not one.silenced and not one.inhibited]
    if sent:
        first = min(sent, key=lambda alert: alert.updated_at)
        at = min(first.updated_at, run.clock.now())  # Alertmanager's clock may be ahead of ours
        run.hop(Hop.NOTIFIED, node, at, f"Alertmanager, receivers {', '.join(first.receivers) or 'none'}")
    for one in ours:
        known = _noted_alert(run, one.labels)
        routing = {"receivers": one.receivers, "silenced": one.silenced, "inhibited": one.inhibited}
        if known is not None and known.model_copy(update=routing) != known:
            run.note(known.model_copy(update=routing))
    return bool(ours)


def _noted_alert(run: Run, labels: Mapping[str, str]) -> AlertSeen | None:
    """Return the noted alert that Alertmanager holds under these labels.

    Only when it sends an alert does Prometheus add its external_labels, such as the operator's `prometheus`.
    """
    known = [seen for seen in active_alerts(run.history()).values() if seen.labels.items() <= labels.items()]
    return max(known, key=lambda seen: len(seen.labels), default=None)
