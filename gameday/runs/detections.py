"""Find the first sighting of each signal on a target, or why it is unknown, in a run's history and frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from gameday.checks.facts import first_few, judge_absence, steps_left_out, stop_reason, why_alerts_may_be_missing
from gameday.checks.guests import why_guest_was_blind
from gameday.checks.verdict import Status
from gameday.detectors.signals import Signal
from gameday.expect.canary import ExpectedMeasurement
from gameday.history.events import (
    AlertSeen,
    AllocatableSeen,
    CanaryMeasured,
    ConditionSeen,
    FaultInjected,
    FaultUndone,
    GuestSpoke,
    HopSeen,
    KubernetesEventSeen,
    NodeSeen,
    Problem,
    Remediated,
    RunEnded,
    StepStarted,
    TaintSeen,
)
from gameday.history.events.signals import DatedEvent
from gameday.plan.models import Plan
from gameday.report.run_folder import RunFolder
from gameday.values.alert_families import is_about_the_node, is_set_off_by_detector
from gameday.values.dated import CLOCK_TOLERANCE_S
from gameday.values.results import Hop, Step


@dataclass(frozen=True)
class Detection:
    """A signal's first sighting. `at` None: not seen. `why`: the reason if that proves nothing."""

    at: datetime | None
    what: str = ""
    why: str = ""


# Conditions of the kubelet, which detectors do not set.
OF_THE_KUBELET = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")


@dataclass(frozen=True)
class FaultWindow:
    """A target from the fault going in to its coming out; what comes later is the repair's doing."""

    run: RunFolder
    node: str
    fault: FaultInjected
    end: datetime

    def holds(self, at: datetime) -> bool:
        """Return True for a time in the window; a source's clock may be behind, and may cut to the second."""
        return self.fault.written_at - timedelta(seconds=CLOCK_TOLERANCE_S) <= at <= self.end

    def when(self, seen: DatedEvent) -> datetime:
        """Return the time of a signal: if its own clock dates it before the fault, the run's look that showed it."""
        return seen.dated.seen_at if seen.dated and seen.at < self.fault.written_at else seen.at


def window_of(run: RunFolder, fault: FaultInjected) -> FaultWindow:
    """Return the fault's window, which ends with the recover step or once the fault is out, whichever is first."""
    intents = {one.intent for _, one in run.history.about(FaultInjected, fault.target.node)}
    undone = [record.at for record, event in run.history.with_times(FaultUndone) if event.intent in intents]
    recovers = [record.at for record, event in run.history.with_times(StepStarted) if event.step is Step.RECOVER]
    ends = [*recovers[:1], *undone[-1:]]
    return FaultWindow(run, fault.target.node, fault, min(ends, default=run.history.records[-1].at))


def first_detection(signal: Signal, window: FaultWindow) -> Detection:
    """Return the time and the form of the signal's first sighting; else why its absence proves nothing."""
    seen = sorted(_LOOK[signal](window), key=lambda one: one[0])
    if seen:
        at, what = seen[0]
        return Detection(at, what)
    return Detection(None, why=_blind(signal, window))


Seen = Iterator[tuple[datetime, str]]


def _log(window: FaultWindow) -> Seen:
    for _, hop in window.run.history.about(HopSeen, window.node):
        if hop.hop is Hop.IN_LOG_STORE:
            yield hop.at, "the kernel-log line in the log store"


def _metric(window: FaultWindow) -> Seen:
    """Yield the expression of an expected rule, dated by Prometheus, and the first series that left its baseline."""
    for _, hop in window.run.history.about(HopSeen, window.node):
        if hop.hop is Hop.SAMPLED:
            yield hop.at, hop.source
    from gameday.runs.metric_departure import first_departure  # noqa: PLC0415 - pandas, for judging only

    move = first_departure(window.run.metrics_of(window.node), window.fault.written_at, window.end)
    if move:
        yield move.at, str(move)


def _alert(window: FaultWindow) -> Seen:
    """Yield alerts; one that only shows the detector's taint or condition counts if the plan names it."""
    for _, seen in window.run.history.about(AlertSeen, window.node):
        fires = seen.state == "firing" and not seen.at_baseline
        counts = window.holds(seen.at) and not is_about_the_node(seen.alert)
        if fires and (seen.expected or counts):
            yield seen.at, seen.alert if seen.expected else f"{seen.alert}, which the plan does not name"


def _condition(window: FaultWindow) -> Seen:
    for _, seen in window.run.history.about(ConditionSeen, window.node):
        if window.holds(seen.at):
            yield (
                window.when(seen),
                f"{seen.condition}={seen.status or 'gone'}" + (f" ({seen.reason})" if seen.reason else ""),
            )


def _taint(window: FaultWindow) -> Seen:
    for _, seen in window.run.history.about(TaintSeen, window.node):
        if seen.present and window.holds(seen.at):
            yield window.when(seen), str(seen.taint)
    looks = window.run.history.about(NodeSeen, window.node)
    before = any(event.snapshot.unschedulable for _, event in looks if event.phase == "before")
    for record, event in looks:
        cordoned = event.snapshot.unschedulable and not before
        if cordoned and event.phase == "during" and window.holds(record.at):
            yield record.at, "cordoned, at the latest"


def _event(window: FaultWindow) -> Seen:
    for _, seen in window.run.history.about(KubernetesEventSeen, window.node):
        if window.holds(seen.at):
            yield window.when(seen), f"{seen.reason} of {seen.source}"


def _allocatable(window: FaultWindow) -> Seen:
    for _, seen in window.run.history.about(AllocatableSeen, window.node):
        fell = (seen.gpus or 0) < (seen.before or 0)
        if fell and window.holds(seen.at):
            yield seen.at, f"{seen.before} → {0 if seen.gpus is None else seen.gpus} GPUs"


def expects_canary_to_feel_fault(plan: Plan) -> bool:
    """Return True if a canary of the plan should feel the fault."""
    return any(expected.feels_fault for expected in plan.expect.measurements)


def _canary(window: FaultWindow) -> Seen:
    """Yield values beyond the plan's own bound, on the side that means that the canary felt the fault."""
    plan = window.run.plan
    base = {e.measure: e.value for e in _canaries(window) if e.phase == "before"}
    expectations: dict[str, ExpectedMeasurement] = (
        {expected.quantity: expected for expected in plan.expect.measurements} if plan else {}
    )
    for seen in _canaries(window):
        before, expected = base.get(seen.measure), expectations.get(seen.measure)
        if expected is None or before is None or seen.phase != "during" or seen.value is None:
            continue
        if expected.holds_during(seen.value, before) is expected.feels_fault:
            yield seen.at, f"{seen.measure} {before:.3g} → {seen.value:.3g} {seen.unit}"


def _canaries(window: FaultWindow) -> list[CanaryMeasured]:
    return [event for _, event in window.run.history.about(CanaryMeasured, window.node)]


def _said(window: FaultWindow) -> Seen:
    for _, seen in window.run.history.about(GuestSpoke, window.node):
        if window.holds(seen.at):
            yield seen.at, seen.line


_LOOK: dict[Signal, Callable[[FaultWindow], Seen]] = {
    Signal.LOG: _log,
    Signal.METRIC: _metric,
    Signal.ALERT: _alert,
    Signal.CONDITION: _condition,
    Signal.TAINT: _taint,
    Signal.EVENT: _event,
    Signal.ALLOCATABLE: _allocatable,
    Signal.CANARY: _canary,
    Signal.SAID: _said,
}
OF_THE_DETECTOR = (Signal.CONDITION, Signal.TAINT, Signal.EVENT, Signal.ALLOCATABLE, Signal.SAID)
"""Signals that come from the detector or its stack; the others come without one."""
_WATCHED_UNTIL = {Signal.LOG: Step.AWAIT_ALERT, Signal.ALERT: Step.AWAIT_ALERT, Signal.METRIC: Step.AWAIT_ALERT}
"""The step that must have ended before the absence of a signal means something; VERIFY_TAINT for signals from the watch
of the node."""


def left_standing(run: RunFolder) -> str | None:
    """Return the taints and conditions that came with the fault and stood at the end; None if nobody repaired."""
    if run.history.last(RunEnded) is None or not any(event.ok for event in run.history.of(Remediated)):
        return None
    windows = {fault.target.node: window_of(run, fault) for fault in run.history.of(FaultInjected)}
    return ", ".join(what for window in windows.values() for what in _standing(window))


def _standing(window: FaultWindow) -> Iterator[str]:
    taints = [seen for _, seen in window.run.history.about(TaintSeen, window.node)]
    for taint in dict.fromkeys(seen.taint for seen in taints if seen.present and window.holds(seen.at)):
        if [seen.present for seen in taints if seen.taint == taint][-1]:
            yield str(taint)
    conditions = [seen for _, seen in window.run.history.about(ConditionSeen, window.node)]
    last = {seen.condition: seen.status for seen in conditions if seen.condition not in OF_THE_KUBELET}
    came = dict.fromkeys((seen.condition, seen.status) for seen in conditions if seen.status and window.holds(seen.at))
    yield from (f"{name}={status}" for name, status in came if last.get(name) == status)


def not_asked(signal: Signal, window: FaultWindow) -> str:
    """Return why the signal was not looked for, if the run's flow leaves out that step; else empty."""
    if signal is Signal.CANARY and _canaries(window):
        return ""
    return steps_left_out(window.run.history).get(_watched_until(signal), "")


def _watched_until(signal: Signal) -> Step:
    return _WATCHED_UNTIL.get(signal, Step.VERIFY_TAINT)


def _blind(signal: Signal, window: FaultWindow) -> str:
    """Return why the signal's absence proves nothing; empty if it does."""
    from gameday.runs.metric_departure import has_baseline  # noqa: PLC0415 - pandas, for judging only

    run, step = window.run, _watched_until(signal)
    if signal is Signal.METRIC and not has_baseline(run.metrics_of(window.node), window.fault.written_at):
        return "no series of the node has samples enough from before the fault"
    if signal is Signal.METRIC and run.plan and not run.plan.expect.alerts:
        return "the series that were kept did not move, and the plan names no rule whose expression could show others"
    if blind := _source_blind(signal, run):
        return blind
    if signal is Signal.CANARY:
        return _canary_blind(window)
    if _is_of_detector(signal, run.plan) and (blind := why_guest_was_blind(run.history, window.node, step)):
        return blind
    status, why = judge_absence(run.history, step, f"the {signal} signal")
    return why if status is Status.UNKNOWN else ""


def _source_blind(signal: Signal, run: RunFolder) -> str:
    """Return why the store that the signal comes from may have missed it; empty if it kept up."""
    if signal in (Signal.ALERT, Signal.METRIC):
        return why_alerts_may_be_missing(run.history)
    return _problem(run, "log store") if signal is Signal.LOG else ""


def _is_of_detector(signal: Signal, plan: Plan | None) -> bool:
    alerts = plan.expect.alerts if plan and signal is Signal.ALERT else ()
    return signal in OF_THE_DETECTOR or any(is_set_off_by_detector(alert.name) for alert in alerts)


def _problem(run: RunFolder, about: str) -> str:
    return next((problem.what for problem in run.history.of(Problem) if about in problem.what), "")


def _canary_blind(window: FaultWindow) -> str:
    canaries = _canaries(window)
    if not canaries:
        return "no canary was run"
    unmeasured = [c.detail or f"{c.measure} has no value {c.phase} the fault" for c in canaries if c.value is None]
    if unmeasured:
        return first_few(unmeasured)
    return "" if {c.phase for c in canaries} >= {"before", "during"} else stop_reason(window.run.history)
