"""The plan's probes must hold, stay and return as it says.

The state of a probe is known only at the moments at which it was asked; between them, and while it could not be read,
it is unknown.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

from gameday.checks.deadlines import ends_within
from gameday.checks.facts import (
    at_most,
    judge_across_clocks,
    remediation_end,
    seconds_text,
    stop_reason,
    target_nodes,
)
from gameday.checks.verdict import Status, Verdict
from gameday.documents.fields import format_duration
from gameday.expect.base import Sighting
from gameday.expect.probes import ExpectedProbe
from gameday.history.events import FaultInjected, ProbeAnswered, Record
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.values.results import Step

ORDER = 59
_Answers = list[tuple[Record, ProbeAnswered]]


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    found = []
    for probe in plan.expect.probes:
        found += during_fault(probe, history)
        found += after_fault(probe, history)
    return found


def during_fault(probe: ExpectedProbe, history: History) -> list[Verdict]:
    """Return the verdicts that step 4 waits for: on `within` and on `stays_for`."""
    found, answers = [], answers_of(probe, history)
    if probe.within:
        found.append(_holds(probe, probe.within, history, answers))
    if probe.stays_for:
        found.append(_stays(probe, probe.stays_for, history, answers))
    return found


def after_fault(probe: ExpectedProbe, history: History) -> list[Verdict]:
    """Return the verdict that step 5 waits for, on `returns_within`."""
    within = probe.returns_within
    return [_returns(probe, within, history, answers_of(probe, history))] if within else []


def answers_of(probe: ExpectedProbe, history: History) -> _Answers:
    """Return every answer to a probe, oldest first."""
    return [(record, one) for record, one in history.with_times(ProbeAnswered) if one.probe == probe.name]


def longest_silence(probe: ExpectedProbe) -> timedelta:
    """Return the longest time between two answers with which the probe still counts as watched: one may be missing."""
    return 2 * probe.every + probe.timeout


def _holds(probe: ExpectedProbe, within: timedelta, history: History, answers: _Answers) -> Verdict:
    """Judge whether the probe began to hold in time, counted from the last target's fault."""
    begin = max((fault.written_at for fault in history.of(FaultInjected)), default=None)
    asked = _asked_from(answers, begin)
    first = next((place for place, (_, one) in enumerate(asked) if one.holds), None)
    status, why, seconds, evidence = Status.UNKNOWN, "", None, asked[-1:]
    if begin is None:
        why = f"not reached: {stop_reason(history)}"
    elif first is not None:
        evidence = asked[first : first + 1]
        status, seconds, why = judge_across_clocks(history, begin, asked[first][1].at, within)
        before = asked[first - 1][1].at if first else begin
        if status is Status.BROKEN and before <= begin + within:
            status, why = Status.UNKNOWN, f"it came between two answers, {why} at the latest; `every` may be shorter"
    elif gap := _gap(probe, asked, begin, begin + within):
        why = gap
    else:
        status, why = Status.BROKEN, f"it did not hold: {asked[-1][1].detail}"
    return _verdict(
        probe, "probe-holds", "comes to hold", at_most(within), Step.VERIFY_TAINT, status, why, seconds, evidence
    )


def _stays(probe: ExpectedProbe, stays_for: timedelta, history: History, answers: _Answers) -> Verdict:
    """Judge whether the probe held whenever it was asked, from the first target's fault on."""
    begin = min((fault.written_at for fault in history.of(FaultInjected)), default=None)
    asked = [
        (record, one) for record, one in _asked_from(answers, begin) if begin and one.asked_at <= begin + stays_for
    ]
    lost = next(((record, one) for record, one in asked if one.holds is False), None)
    unread = [one for _, one in asked if one.holds is None]
    status, why, evidence = Status.UNKNOWN, "", asked[-1:]
    if begin is None:
        why = f"not reached: {stop_reason(history)}"
    elif lost:
        after = seconds_text(max(0.0, (lost[1].at - begin).total_seconds()))
        status, why, evidence = Status.BROKEN, f"it did not hold {after} after the fault: {lost[1].detail}", [lost]
    elif unread:
        why = f"it could not be read {len(unread)} of {len(asked)} times: {unread[-1].detail}"
    elif gap := _gap(probe, asked, begin, begin + stays_for):
        why = gap
    else:
        status = Status.HELD
    bound = f"for {format_duration(stays_for)}"
    verdict = _verdict(probe, "probe-stays", "holds on", bound, Step.VERIFY_TAINT, status, why, None, evidence)
    held = len([one for _, one in asked if one.holds])
    return verdict.model_copy(update={"measured": f"{held} of {len(asked)} answers" if asked else ""})


def _returns(probe: ExpectedProbe, within: timedelta, history: History, answers: _Answers) -> Verdict:
    """Judge whether the probe held again in time, counted from the last target's remediation."""
    ends = {node: end.at for node in target_nodes(history) if (end := remediation_end(history, node))}
    node = max(ends, key=lambda one: ends[one], default=None)
    asked = _asked_from(answers, ends.get(node))
    back = next((Sighting(record, one.at) for record, one in asked if one.holds), None)
    verdict = ends_within(
        history, node, "probe-returns", _sentence(probe, "holds after the remediation"), within, back, came=True
    ).model_copy(update={"node": None})
    if back is None and verdict.status is Status.BROKEN:
        if not asked or asked[-1][1].holds is None:
            why = f"it could not be read: {asked[-1][1].detail}" if asked else "it was not asked after the remediation"
            return verdict.model_copy(update={"status": Status.UNKNOWN, "why": why})
        return verdict.model_copy(update={"why": f"it does not hold: {asked[-1][1].detail}"})
    return verdict


def _asked_from(answers: _Answers, begin: datetime | None) -> _Answers:
    return [(record, one) for record, one in answers if begin and one.asked_at >= begin]


def _gap(probe: ExpectedProbe, asked: _Answers, begin: datetime, end: datetime) -> str:
    """Return why the answers say too little about this time; empty if they cover it.

    A job takes its own time and is asked in step 4 only, so one answer is enough.
    """
    readable = [one for _, one in asked if one.holds is not None]
    if not readable:
        return f"it could not be read: {asked[-1][1].detail}" if asked else "it was not asked in this time"
    if probe.job:
        return ""
    times = [begin, *(one.at for one in readable), *([end] if readable[-1].at < end else [])]
    longest = max(after - before for before, after in pairwise(times))
    if longest > longest_silence(probe):
        return f"it could not be read for {seconds_text(longest.total_seconds())}"
    return ""


def _sentence(probe: ExpectedProbe, does: str) -> str:
    return f"Probe {probe.name} ({probe.kind}) {does}"


def _verdict(
    probe: ExpectedProbe,
    check: str,
    does: str,
    bound: str,
    step: Step,
    status: Status,
    why: str,
    seconds: float | None,
    evidence: _Answers,
) -> Verdict:
    return Verdict(
        check=check,
        expectation=_sentence(probe, does),
        bound=bound,
        measured="" if seconds is None else seconds_text(seconds),
        status=status,
        step=step,
        why=why,
        seconds=seconds,
        evidence=tuple(record.seq for record, _ in evidence),
    )
