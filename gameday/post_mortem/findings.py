"""An incident's findings on the chain: log line, alert, notification, quarantine, return.

A finding has three values, because something that nobody recorded may still have happened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from gameday.checks.facts import seconds_text
from gameday.checks.verdict import Status
from gameday.history.events import AlertSeen, KernelLineSeen, NodeSeen, TaintSeen
from gameday.history.journal import History
from gameday.post_mortem.incident import Incident, SourceState
from gameday.report.summary import Noticed

_STAMP_S = 1.0
"""Kubernetes' time stamps have whole seconds."""
_AT_ONCE = "within a second of the first sign"
_NODE = "the node (Kubernetes)"


class IncidentFinding(BaseModel):
    """A finding; `seconds` after the first sign, None if there is nothing to time."""

    model_config = ConfigDict(frozen=True)

    id: str
    question: str
    status: Status
    answer: str
    seconds: float | None = None


class Sign(NamedTuple):
    """The first sign; if `line` is false it is an alert, and the age of the fault by then is unknown."""

    at: datetime
    what: str
    line: bool


def first_sign(history: History) -> Sign | None:
    """Return the sign that the figures count from, or None if there is no sign at all.

    It is the first line that calls for quarantine, else the first GPU line, else the first alert that came within the
    window.
    """
    lines = sorted(history.of(KernelLineSeen), key=lambda line: line.at)
    fatal = [line for line in lines if line.decision == "quarantine"]
    if lines:
        what = "the first kernel line that calls for quarantine" if fatal else "the first kernel line about a GPU"
        return Sign((fatal or lines)[0].at, what, line=True)
    fired = [alert for alert in history.of(AlertSeen) if alert.state == "firing" and not alert.at_baseline]
    if fired:
        first_alert = min(fired, key=lambda alert: alert.at)
        return Sign(first_alert.at, f"the alert {first_alert.alert}: no kernel line names a GPU", line=False)
    return None


def findings(incident: Incident, history: History) -> tuple[IncidentFinding, ...]:
    made = (_log(incident, history), _alert(incident, history), _reached(incident, history))
    return tuple(finding for finding in (*made, _taint(incident, history), _back(incident, history)) if finding)


def noticed(found: tuple[IncidentFinding, ...]) -> Noticed:
    """Return how far the cluster noticed: PARTLY only if one signal is proved to have come, and another not."""
    asked = {finding.status for finding in found if finding.id in ("alert", "taint")}
    if asked == {Status.HELD}:
        return Noticed.YES
    if asked >= {Status.HELD, Status.BROKEN}:
        return Noticed.PARTLY
    return Noticed.NO if asked == {Status.BROKEN} else Noticed.UNKNOWN


def _since(sign: Sign | None, at: datetime) -> tuple[float | None, str]:
    """Return the seconds from the first sign, and a text about them.

    An alert as first sign dates no fault, and Kubernetes stamps to the second; an earlier moment has no duration.
    """
    if sign is None or not sign.line:
        return None, f"at {at:%H:%M:%S} UTC"
    seconds = (at - sign.at).total_seconds()
    if seconds <= -_STAMP_S:
        return None, f"{seconds_text(-seconds)} before the first sign"
    return max(0.0, seconds), f"{seconds_text(seconds)} after the first sign" if seconds > 0 else _AT_ONCE


def _read(incident: Incident, name: str) -> bool:
    """Return True if the source was read and has data of the window; only then does absence prove anything."""
    return any(source.name.startswith(name) and source.state is SourceState.READ for source in incident.sources)


def _why_unread(incident: Incident, name: str) -> str:
    source = next((source for source in incident.sources if source.name.startswith(name)), None)
    if source is None:
        return f"{name} was not read"
    return f"{source.name}: " + (
        "it has nothing of this window" if source.state is SourceState.EMPTY else source.detail
    )


def _log(incident: Incident, history: History) -> IncidentFinding:
    question = "Did the kernel log name the fault?"
    lines = history.of(KernelLineSeen)
    if lines:
        answer = f"{len(lines)} line{'' if len(lines) == 1 else 's'} about a GPU; the first: {lines[0].reason}"
        return IncidentFinding(id="log", question=question, status=Status.HELD, answer=answer)
    if _read(incident, "kernel log"):
        return IncidentFinding(
            id="log", question=question, status=Status.BROKEN, answer="no line of the window speaks of a GPU"
        )
    return IncidentFinding(
        id="log", question=question, status=Status.UNKNOWN, answer=_why_unread(incident, "kernel log")
    )


def _alert(incident: Incident, history: History) -> IncidentFinding:
    question = "Did an alert fire for the node?"
    sign = first_sign(history)
    fired = sorted(
        (alert for alert in history.of(AlertSeen) if alert.state == "firing" and not alert.at_baseline),
        key=lambda alert: alert.at,
    )
    after = [alert for alert in fired if sign and alert.at >= sign.at]
    if after:
        seconds, when = _since(sign, after[0].at)
        answer = f"{after[0].alert}, {when}"
        return IncidentFinding(id="alert", question=question, status=Status.HELD, answer=answer, seconds=seconds)
    if fired:
        answer = f"{fired[0].alert} fired, before the first sign in the log"
        return IncidentFinding(id="alert", question=question, status=Status.HELD, answer=answer)
    if standing := {alert.alert for alert in history.of(AlertSeen) if alert.at_baseline}:
        names = ", ".join(sorted(standing))
        answer = f"{names} stood when the window began; begin it earlier to see when it fired"
        return IncidentFinding(id="alert", question=question, status=Status.UNKNOWN, answer=answer)
    if _read(incident, "alerts"):
        answer = "none: Prometheus has samples of the window, and no ALERTS series names the node"
        return IncidentFinding(id="alert", question=question, status=Status.BROKEN, answer=answer)
    return IncidentFinding(id="alert", question=question, status=Status.UNKNOWN, answer=_why_unread(incident, "alerts"))


def _reached(incident: Incident, history: History) -> IncidentFinding | None:
    """Judge whether the alert reached somebody; None if none fired."""
    fired = [alert for alert in history.of(AlertSeen) if alert.state == "firing"]
    if not fired:
        return None
    question = "Did the alert reach somebody?"
    sent = [alert for alert in fired if not alert.silenced and not alert.inhibited]
    receivers = sorted({name for alert in sent for name in alert.receivers})
    if receivers:
        status, answer = Status.HELD, f"Alertmanager routes it to {', '.join(receivers)}; who read it, only people know"
    elif sent:
        status = Status.UNKNOWN
        answer = "Alertmanager no longer holds it (it forgets what is resolved), or could not be read"
    else:
        status, answer = Status.BROKEN, "not sent"
    return IncidentFinding(
        id="reached", question=question, status=status, answer="; ".join((answer, *_muted(incident, fired)))
    )


def _muted(incident: Incident, fired: Sequence[AlertSeen]) -> Iterator[str]:
    """Yield a sentence per silence or inhibition; a silence that was set after the alert fired muted nothing."""
    for silence in incident.silences:
        times = [alert.at for alert in fired if alert.alert == silence.alert]
        by = f"by {silence.created_by}: {silence.comment or 'no comment'}"
        if any(silence.start <= at < silence.end for at in times):
            yield f"{silence.alert} was silenced {by}"
        elif silence.start > min(times, default=silence.start):
            yield f"{silence.alert} was silenced later, at {silence.start:%H:%M:%S} UTC, {by}"
    for name in sorted({alert.alert for alert in fired if alert.inhibited}):
        yield f"{name} was inhibited: another alert muted it when Alertmanager was read"


def _taint(incident: Incident, history: History) -> IncidentFinding | None:
    """Judge whether the node was quarantined; None if no line calls for it."""
    keys, question = incident.quarantine_keys, "Was the node quarantined?"
    sign = first_sign(history)
    there = [taint for taint in history.of(TaintSeen) if taint.present and taint.taint.key in keys]
    came = [taint for taint in there if not taint.at_baseline]
    if came:
        seconds, when = _since(sign, came[0].at)
        # A stamp in managedFields is cut to the second; a sample's time and a detector's decision are not.
        exact = "" if came[0].at.microsecond or when == _AT_ONCE else f", to {seconds_text(_STAMP_S)}"
        answer = f"{came[0].taint} by {came[0].manager or 'somebody'}, {when}{exact}"
        return IncidentFinding(id="taint", question=question, status=Status.HELD, answer=answer, seconds=seconds)
    lines = history.of(KernelLineSeen)
    if lines and not any(line.decision == "quarantine" for line in lines):
        return None
    if there:
        answer = f"{there[0].taint} was there when the window began; begin it earlier to see when it came"
        return IncidentFinding(id="taint", question=question, status=Status.UNKNOWN, answer=answer)
    if _read(incident, "taint history"):
        answer = f"no taint {', '.join(keys)} in kube-state-metrics' samples of the window"
        return IncidentFinding(id="taint", question=question, status=Status.BROKEN, answer=answer)
    now = (
        "none that is there now was set in the window"
        if _read(incident, "the node")
        else _why_unread(incident, "the node")
    )
    answer = f"nobody kept a history of taints (scrape kube-state-metrics), and {now}"
    return IncidentFinding(id="taint", question=question, status=Status.UNKNOWN, answer=answer)


def _back(incident: Incident, history: History) -> IncidentFinding:
    question = "Is the node in service now?"
    seen = history.last(NodeSeen)
    if seen is None:
        source = incident.source(_NODE)
        absent = source is not None and source.state is SourceState.EMPTY
        answer = "Kubernetes knows no such node now: was it replaced?" if absent else _why_unread(incident, "the node")
        return IncidentFinding(id="back", question=question, status=Status.UNKNOWN, answer=answer)
    snap = seen.snapshot
    against = [str(taint) for taint in snap.taints if taint.key in incident.quarantine_keys]
    against += ["cordoned"] if snap.unschedulable else []
    against += [f"Ready={snap.conditions.get('Ready')}"] if snap.conditions.get("Ready") != "True" else []
    if against:
        return IncidentFinding(id="back", question=question, status=Status.BROKEN, answer=f"no: {', '.join(against)}")
    gone = [
        taint for taint in history.of(TaintSeen) if not taint.present and taint.taint.key in incident.quarantine_keys
    ]
    seconds, when = _since(first_sign(history), gone[-1].at) if gone else (None, "")
    gpus = "GPUs not reported" if snap.allocatable_gpus is None else f"{snap.allocatable_gpus} GPUs allocatable"
    answer = f"Ready, schedulable, {gpus}" + (f"; untainted {when}" if when else "")
    return IncidentFinding(id="back", question=question, status=Status.HELD, answer=answer, seconds=seconds)
