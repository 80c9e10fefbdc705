"""The first screen: the outcome, why in one sentence, whether the cluster noticed, the durations, the run as lanes."""

from __future__ import annotations

from pydantic import BaseModel, Field

from gameday.checks.facts import seconds_text
from gameday.checks.fault_state import FaultState, fault_state
from gameday.checks.outcome import RunResult
from gameday.checks.verdict import Status
from gameday.history.events import Aborted, AlertSeen, RunEnded, RunStarted, TaintSeen, TargetsChosen
from gameday.report.compare import Trend, trends
from gameday.report.durations import SINCE, durations
from gameday.report.formatting import sentence
from gameday.report.lanes import Lanes, story_lanes
from gameday.report.next_command import NextCommand, next_command
from gameday.report.noticed import SIGNAL_PHRASES, first_taint, noticed, signal_verdicts
from gameday.report.run_folder import RunFolder
from gameday.report.summary import Noticed, RunDuration, virtual_words
from gameday.values.nodes import StruckDomain

ORDER = 0
TITLE = "Outcome"
OPEN = True


class BigNumber(BaseModel):
    number: RunDuration
    since: str
    regressed: str = Field(description="the runs that it is slower than, by the rule of the comparison; else empty")


class VerdictStrip(BaseModel):
    result: RunResult
    trigger: str
    virtual: str = Field(description="that GPUs of its targets are virtual; empty if none are")
    noticed: Noticed
    noticed_how: str
    held: int
    broken: int
    unknown: int
    not_asked: int
    numbers: tuple[BigNumber, ...]
    story: Lanes
    problems: int
    doctor: str = Field(description="doctor's first finding with its next step; empty if it was not asked")
    next: NextCommand | None
    domain: StruckDomain | None = Field(description="None: the plan breaks a number of nodes")
    targets: int


def build(run: RunFolder) -> VerdictStrip:
    started = run.started
    count = [verdict.status for verdict in run.verdicts].count
    measured = durations(run)
    compared = {trend.measure: trend for trend in trends(measured, run.earlier)}
    seen = noticed(run)
    return VerdictStrip(
        result=run.result,
        trigger=_trigger(started) if started else "",
        virtual=_virtual(run),
        noticed=seen,
        noticed_how=_how(run, seen),
        held=count(Status.HELD),
        broken=count(Status.BROKEN),
        unknown=count(Status.UNKNOWN),
        not_asked=count(Status.NOT_ASKED),
        numbers=tuple(_big(number, compared[number.measure]) for number in measured),
        story=story_lanes(run),
        problems=len(run.problems),
        doctor=run.doctors_word.lines[0] if run.doctors_word else "",
        next=next_command(started, run.result, ended=run.history.last(RunEnded) is not None),
        domain=chosen.domain if (chosen := run.history.last(TargetsChosen)) else None,
        targets=len(run.target_names),
    )


def _big(number: RunDuration, trend: Trend) -> BigNumber:
    slower = f"slower than the last {trend.sound} that passed, at most {seconds_text(trend.slowest_s or 0.0)}"
    return BigNumber(number=number, since=SINCE[number.measure], regressed=slower if trend.regressed else "")


def _trigger(started: RunStarted) -> str:
    by = f"by {started.operator}" if started.operator else ""
    return {"rehearsal": "Rehearsal", "manual": f"Manual {by}".strip(), "scheduled": "Scheduled"}[started.trigger]


def _virtual(run: RunFolder) -> str:
    virtual = [node in run.virtual_targets for node in run.target_names]
    return "Virtual GPUs" if run.is_virtual else sentence(virtual_words(virtual, "targets"))


def _taints_all_the_same(run: RunFolder) -> list[str]:
    """Return a phrase for each target that was tainted although no taint was expected."""
    found = [(node, taint) for node in run.target_names if (taint := first_taint(run, node))]
    return [f"{node} was tainted all the same: {taint.taint}, {_after_fault(run, taint)}" for node, taint in found]


def _after_fault(run: RunFolder, taint: TaintSeen) -> str:
    by = f" by {taint.manager}" if taint.manager else ""
    return f"{seconds_text(max(0.0, run.offset_s(taint.at)))} after the fault{by}"


def _how(run: RunFolder, seen: Noticed) -> str:
    """Return the signals one by one, because 'in part' alone says nothing; the slowest of each kind."""
    if seen is Noticed.NOT_ASKED:
        return "; ".join(
            [
                "the plan names nothing that the fault must set off, or the flow leaves out the steps that look for it",
                *_taints_all_the_same(run),
            ]
        )
    went_in = fault_state(run.history)
    if went_in is not FaultState.IN:
        so_far = " so far" if run.history.is_running else ""
        return "; ".join([f"{went_in}{so_far}", *(_came_all_the_same(run) if went_in is FaultState.POSSIBLE else ())])
    parts, stopped = [], _why_not_seen(run)
    for check, (happened, not_happened) in SIGNAL_PHRASES.items():
        of_kind = [verdict for verdict in signal_verdicts(run) if verdict.check == check]
        missed = [verdict for verdict in of_kind if verdict.seconds is None and verdict.status is Status.BROKEN]
        unseen = [verdict for verdict in of_kind if verdict.seconds is None and verdict.status is Status.UNKNOWN]
        measured = [verdict.seconds for verdict in of_kind if verdict.seconds is not None]
        if measured:
            late = ", too late or not as expected" if Status.BROKEN in {v.status for v in of_kind} else ""
            parts.append(f"{happened} {seconds_text(max(measured))} after the fault{late if not missed else ''}")
        if missed:
            parts.append(not_happened + (f" ({len(missed)} of {len(of_kind)})" if len(of_kind) > 1 else ""))
        if unseen:
            parts.append(f"{happened}: {stopped}")
    return "; ".join(parts)


def _why_not_seen(run: RunFolder) -> str:
    """Return why an expected signal has no time, in as few words as the first screen allows."""
    if run.history.is_running:
        return "not seen so far"
    if run.history.last(Aborted):
        return "not seen before the run was stopped"
    return "not measured" if run.history.last(RunEnded) else "not seen before the history stops"


def _came_all_the_same(run: RunFolder) -> list[str]:
    """Return a phrase for each alert that fired and each target that was tainted, if nobody can say by what."""
    firing = [one for one in run.history.of(AlertSeen) if one.expected and one.state == "firing"]
    alerts = [f"alert {one.alert} fired for {one.node or 'no node'}" for one in firing if not one.at_baseline]
    taints = [one for one in run.history.of(TaintSeen) if one.present and not one.at_baseline]
    return list(dict.fromkeys([*alerts, *(f"{one.node} was tainted with {one.taint}" for one in taints)]))
