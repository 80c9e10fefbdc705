"""A job on the target must continue, or resume from its checkpoint, as the plan says."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from gameday.checks.facts import at_most, judge_duration, seconds_text, stop_reason
from gameday.checks.verdict import Status, Verdict
from gameday.expect.job import ExpectedJob
from gameday.history.events import FaultInjected, JobStepSeen, Record
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.values.results import Step

ORDER = 60
_Seen = tuple[Record, JobStepSeen]


@dataclass(frozen=True)
class Recovery:
    """The parts of a job's recovery that a history shows."""

    before: tuple[_Seen, ...]
    """The containers that had printed a step by the time the fault went in, as they were last seen."""
    stopped: _Seen | None
    """The container that had come furthest of those that ended."""
    resumed: _Seen | None
    """The first container to print a step after that."""
    begin: datetime
    end: datetime
    """The last moment in the history."""

    @property
    def lost_steps(self) -> int | None:
        """Number of steps that were printed twice; None if nothing resumed."""
        if self.stopped is None or self.resumed is None:
            return None
        return max(0, self.stopped[1].last_step - self.resumed[1].first_step + 1)


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    expected = plan.expect.job
    return verdicts(expected, history) if expected else []


def verdicts(expected: ExpectedJob, history: History) -> list[Verdict]:
    """Return the verdicts on a job: that it stopped, if the plan asks for it, how soon it resumed, and what it lost."""
    found = recovery(history)
    if found is None:
        why = f"not reached: {stop_reason(history)}"
        return [_verdict("job-resumes", "The job goes on", at_most(expected.resumes_within), Status.UNKNOWN, why)]
    stops = [_stops(found)] if expected.must_stop else []
    lost = [_lost(expected.lost_steps_at_most, found)] if expected.lost_steps_at_most is not None else []
    return [*stops, _resumes(expected.resumes_within, found), *lost]


def recovery(history: History) -> Recovery | None:
    """Return what a history shows of the job; None if no fault went in."""
    begin = min((fault.written_at for fault in history.of(FaultInjected)), default=None)
    if begin is None:
        return None
    newest: dict[tuple[str, int], _Seen] = {}
    for record, seen in history.with_times(JobStepSeen):
        newest[seen.uid, seen.restarts] = (record, seen)
    before = tuple(one for one in newest.values() if one[1].first_at <= begin)
    ended = [one for one in before if one[1].ended]
    stopped = max(ended, key=lambda one: one[1].last_step, default=None)
    later = [one for one in newest.values() if stopped and one[1].first_at > stopped[1].last_at and one not in before]
    resumed = min(later, key=lambda one: one[1].first_at, default=None)
    return Recovery(before, stopped, resumed, begin, max(record.at for record in history.records))


def _stops(found: Recovery) -> Verdict:
    status, why = (Status.HELD, "") if found.stopped else (Status.BROKEN, "no container of it ended")
    if not found.before:
        status, why = Status.UNKNOWN, "no step of it was seen before the fault"
    return _verdict("job-stops", "The fault stops the job", "", status, why, (found.stopped,))


def _resumes(within: timedelta, found: Recovery) -> Verdict:
    status, why, seconds = Status.UNKNOWN, "", None
    evidence: tuple[_Seen | None, ...] = (found.stopped, found.resumed)
    if not found.before:
        why = "no step of it was seen before the fault"
    elif found.stopped is None:
        furthest = max(found.before, key=lambda one: one[1].last_at)
        evidence = (furthest,)
        if furthest[1].last_at > found.begin:
            status, why = Status.HELD, "it was not interrupted"
        elif found.end - furthest[1].last_at > within:
            silence = seconds_text((found.end - furthest[1].last_at).total_seconds())
            status, why = Status.BROKEN, f"it runs, and has printed no step for {silence}"
        else:
            why = "it runs, and the run ended before its next step"
    elif found.resumed:
        status, seconds, why = judge_duration(found.stopped[1].last_at, found.resumed[1].first_at, within)
    else:
        silent = found.end - found.stopped[1].last_at
        passed = seconds_text(silent.total_seconds())
        status = Status.BROKEN if silent > within else Status.UNKNOWN
        why = f"nothing has printed a step in the {passed} since its last one"
    measured = "" if seconds is None else seconds_text(seconds)
    return _verdict(
        "job-resumes", "The job goes on", at_most(within), status, why, evidence, measured=measured, seconds=seconds
    )


def _lost(most: int, found: Recovery) -> Verdict:
    lost = 0 if found.before and found.stopped is None else found.lost_steps
    status, why, measured = Status.UNKNOWN, "it has not resumed", ""
    if lost is not None:
        status, why, measured = (Status.HELD if lost <= most else Status.BROKEN), "", f"{lost} steps"
    if found.stopped and found.resumed:
        why = f"it had come to {found.stopped[1].last_step}, and went on at {found.resumed[1].first_step}"
    return _verdict(
        "job-lost-steps",
        "The job repeats few steps",
        f"≤ {most} steps",
        status,
        why,
        (found.stopped, found.resumed),
        measured=measured,
    )


def _verdict(
    check: str,
    expectation: str,
    bound: str,
    status: Status,
    why: str,
    evidence: tuple[_Seen | None, ...] = (),
    *,
    measured: str = "",
    seconds: float | None = None,
) -> Verdict:
    return Verdict(
        check=check,
        expectation=expectation,
        bound=bound,
        measured=measured,
        status=status,
        step=Step.QA_NODE,
        why=why,
        seconds=seconds,
        evidence=tuple(one[0].seq for one in evidence if one),
    )
