"""A history's events as sentences for the timeline: who acted, and what happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gameday.checks.facts import seconds_text
from gameday.checks.residue import NODE_LIFECYCLE_DOMAIN
from gameday.history.events import (
    Aborted,
    AlertSeen,
    Cleanliness,
    Event,
    FaultInjected,
    FaultUndone,
    Hop,
    HopSeen,
    IntentRecorded,
    NodeReturned,
    Problem,
    Refused,
    Remediated,
    RunEnded,
    RunStarted,
    SteadyStateChecked,
    StepEnded,
    StepOutcome,
    StepStarted,
    TaintSeen,
    TargetsChosen,
    WorkloadSeen,
)


@dataclass(frozen=True)
class Said:
    """`at` is the event's own source's stamp; None: when we wrote it down. `tone` picks the mark, never the text."""

    actor: str
    text: str
    tone: str = ""
    at: datetime | None = None


_CLEANLINESS_TONE = {Cleanliness.CLEAN: "good", Cleanliness.DIRTY: "bad", Cleanliness.UNKNOWN: "doubt"}
_STEP_TONE = {StepOutcome.DONE: "good", StepOutcome.BROKEN: "bad"}


def narrate(event: Event) -> Said | None:
    """The event as one sentence; None for what the timeline leaves to other sections (QA rows, snapshots, costs)."""
    teller = _TELLERS.get(type(event))
    return teller(event) if teller else None


def _ok(ok: bool | None) -> str:
    return {True: "good", False: "bad", None: "doubt"}[ok]


def _started(event: RunStarted) -> Said:
    return Said(event.operator or event.trigger, f"Run {event.run_id} of plan {event.plan_name} started")


def _step_ended(event: StepEnded) -> Said:
    why = f": {event.why}" if event.why else ""
    return Said("game-day", f"Step ‘{event.step}’ {event.outcome}{why}", _STEP_TONE.get(event.outcome, "doubt"))


def _targets(event: TargetsChosen) -> Said:
    names = ", ".join(t.node + (f" GPU {t.gpu}" if t.gpu is not None else "") for t in event.targets)
    return Said("game-day", f"Target chosen: {names} (of {event.candidates} candidates, {event.rule})")


def _steady(event: SteadyStateChecked) -> Said:
    took = f" ({seconds_text(event.seconds)})" if event.seconds is not None else ""
    return Said("game-day", f"Steady state, {event.name}: {event.detail}{took}", _ok(event.ok))


def _intent(event: IntentRecorded) -> Said:
    return Said("ledger", f"Intent {event.intent}: {event.act} on {event.object}; undo: {event.undo}")


def _injected(event: FaultInjected) -> Said:
    gpu = f" GPU {event.target.gpu}" if event.target.gpu is not None else ""
    return Said("agent", f"Fault {event.fault} in on {event.target.node}{gpu}, {event.layer}", "mark", event.written_at)


def _undone(event: FaultUndone) -> Said:
    tries = f", {event.attempts} attempts" if event.attempts > 1 else ""
    where = f" on {event.node}" if event.node else ""
    text = f"Undone by {event.by}: intent {event.intent}{where}, read back {event.cleanliness}{tries}"
    return Said(event.by, text, _CLEANLINESS_TONE[event.cleanliness])


_TOLD_BY_THEIR_OWN_EVENT = {Hop.WRITTEN, Hop.RULE_PENDING, Hop.RULE_FIRING, Hop.TAINTED}


def _hop(event: HopSeen) -> Said | None:
    if event.hop in _TOLD_BY_THEIR_OWN_EVENT:
        return None
    return Said(event.source, f"{event.node}: {event.hop}", "", event.at)


def _alert(event: AlertSeen) -> Said:
    notes = [n for n, on in (("at baseline", event.at_baseline), ("silenced", event.silenced)) if on]
    notes += [] if event.expected or event.at_baseline else ["unexpected"]
    text = f"Alert {event.alert} {event.state} for {event.node or 'no node'}"
    tone = "mark" if event.expected and event.state == "firing" else "bad" if "unexpected" in notes else ""
    return Said("Prometheus", text + (f" ({', '.join(notes)})" if notes else ""), tone, event.at)


def _taint(event: TaintSeen) -> Said:
    verb = "on" if event.present else "gone from"
    tone = "" if event.taint.key.startswith(NODE_LIFECYCLE_DOMAIN) else "mark"
    return Said(event.manager or "Kubernetes", f"Taint {event.taint} {verb} {event.node}", tone, event.at)


def _workload(event: WorkloadSeen) -> Said:
    where = f"on {event.node}" if event.node else "unscheduled"
    detail = f": {event.detail}" if event.detail else ""
    return Said("scheduler", f"{event.purpose} pod {event.pod} {event.phase}, {where}{detail}", _ok(event.ok))


def _remediated(event: Remediated) -> Said:
    result = "succeeded" if event.ok else "failed"
    detail = f": {event.detail}" if event.detail else ""
    text = f"Remediation {event.action} of {event.node} {result} in {seconds_text(event.seconds)}{detail}"
    return Said("agent", text, _ok(event.ok))


def _returned(event: NodeReturned) -> Said:
    taints = ", ".join(map(str, event.removed_taints)) or "no taint"
    cordon = ", uncordoned" if event.uncordoned else ""
    return Said("game-day", f"{event.node} returned to work: {taints} removed{cordon}", "good")


def _problem(event: Problem) -> Said:
    return Said("game-day", event.what + (f" ({event.hint})" if event.hint else ""), "doubt")


_TELLERS: dict[type, Callable[[Any], Said | None]] = {
    RunStarted: _started,
    StepStarted: lambda e: Said("game-day", f"Step ‘{e.step}’ started", "step"),
    StepEnded: _step_ended,
    TargetsChosen: _targets,
    SteadyStateChecked: _steady,
    IntentRecorded: _intent,
    FaultInjected: _injected,
    FaultUndone: _undone,
    HopSeen: _hop,
    AlertSeen: _alert,
    TaintSeen: _taint,
    WorkloadSeen: _workload,
    Remediated: _remediated,
    NodeReturned: _returned,
    Problem: _problem,
    Aborted: lambda e: Said(e.by, f"Aborted: {e.why}", "bad"),
    Refused: lambda e: Said("guard", f"Refused: {e.why}", "doubt"),
    RunEnded: lambda e: Said("game-day", f"Run ended, cluster {e.cleanliness}", _CLEANLINESS_TONE[e.cleanliness]),
}
