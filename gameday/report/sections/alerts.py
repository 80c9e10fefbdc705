"""The alert matrix: what should have fired and did or did not, what else fired, was there before, or was silenced."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from gameday.checks.facts import first_fault, target_nodes
from gameday.expect.alerts import ExpectedAlert
from gameday.expect.alerts.judge import endings, label_gaps
from gameday.history.events import AlertSeen, StepStarted
from gameday.report.lanes import distinguishing_labels
from gameday.report.run_folder import RunFolder
from gameday.values.results import Step

ORDER = 40
TITLE = "Alerts"
GROUP = "Fault and signals"


class ExpectedRow(BaseModel):
    alert: str
    node: str | None
    bound_s: float
    pending_at: datetime | None
    firing_at: datetime | None
    resolved_at: datetime | None = Field(description="of the last label set; None while one of them fires")
    labels_wanted: dict[str, str]
    label_gaps: tuple[str, ...] | None
    receivers: tuple[str, ...] | None
    to_fire_s: float | None
    firing_for_s: float | None
    to_resolve_s: float | None = Field(description="from the end of the remediation")
    resolves_bound_s: float
    severity: str | None
    silenced: bool | None
    inhibited: bool | None = Field(description="muted by another alert in each label set, so that nothing was sent")


class OtherRow(BaseModel):
    alert: str
    node: str | None
    which: str = Field(description="labels that others of its name and node have otherwise")
    state: str
    severity: str | None
    first_at: datetime
    summary: str
    silenced: bool


class AlertMatrix(BaseModel):
    watched: bool
    expected: tuple[ExpectedRow, ...]
    unexpected: tuple[OtherRow, ...]
    at_baseline: tuple[OtherRow, ...]
    others_allowed: bool | None


def build(run: RunFolder) -> AlertMatrix:
    seen = run.history.of(AlertSeen)
    wanted = run.plan.expect.alerts if run.plan else ()
    return AlertMatrix(
        watched=any(started.step == Step.AWAIT_ALERT for started in run.history.of(StepStarted)),
        expected=tuple(_expected(run, alert, node) for alert in wanted for node in target_nodes(run.history)),
        unexpected=_others([event for event in seen if not event.expected and not event.at_baseline]),
        at_baseline=_others([event for event in seen if event.at_baseline]),
        others_allowed=run.plan.expect.allow_other_alerts if run.plan else None,
    )


def _expected(run: RunFolder, alert: ExpectedAlert, node: str | None) -> ExpectedRow:
    life = [
        event
        for event in run.history.of(AlertSeen)
        if event.alert == alert.name and event.node == alert.about(node) and not event.at_baseline
    ]
    times = {state: [event.at for event in life if event.state == state] for state in ("pending", "firing")}
    firing = [event for event in life if event.state == "firing"]
    fault = first_fault(run.history, node)
    firing_at = min(times["firing"], default=None)
    ends = endings(run.history, alert.name, alert.about(node))
    resolved_at = None if None in ends else max((end[1].at for end in ends if end), default=None)
    sent = {name for event in firing if not event.inhibited for name in event.receivers}
    gaps = min((label_gaps(alert, event.labels) for event in firing), key=len) if firing else None
    return ExpectedRow(
        alert=alert.name,
        node=node,
        bound_s=alert.within.total_seconds(),
        pending_at=min(times["pending"], default=None),
        firing_at=firing_at,
        resolved_at=resolved_at,
        labels_wanted=alert.labels,
        label_gaps=None if gaps is None else tuple(gaps),
        receivers=tuple(sorted(sent)) if firing else None,
        to_fire_s=(firing_at - fault[1].written_at).total_seconds() if firing_at and fault else None,
        firing_for_s=(resolved_at - firing_at).total_seconds() if firing_at and resolved_at else None,
        to_resolve_s=_to_resolve(run, alert, node),
        resolves_bound_s=alert.resolves_within.total_seconds(),
        severity=next((event.labels["severity"] for event in life if "severity" in event.labels), None),
        silenced=any(event.silenced for event in life) if life else None,
        inhibited=not sent and any(event.inhibited for event in firing) if life else None,
    )


def _to_resolve(run: RunFolder, alert: ExpectedAlert, node: str | None) -> float | None:
    """Return the time to resolve as the check measured it."""
    wanted = [verdict for verdict in run.verdicts if verdict.check == "alert-resolves" and verdict.node == node]
    return next((verdict.seconds for verdict in wanted if f" {alert.name} " in verdict.expectation), None)


def _others(seen: list[AlertSeen]) -> tuple[OtherRow, ...]:
    """Return a row per label set, in its newest state."""
    newest: dict[str, OtherRow] = {}
    apart = distinguishing_labels(seen)
    for event in seen:
        first = newest.get(event.label_set)
        newest[event.label_set] = OtherRow(
            alert=event.alert,
            node=event.node,
            which=apart[event.label_set],
            state=event.state,
            severity=event.labels.get("severity"),
            first_at=min(first.first_at, event.at) if first else event.at,
            summary=event.annotations.get("summary") or event.annotations.get("description", ""),
            silenced=event.silenced,
        )
    return tuple(newest.values())
