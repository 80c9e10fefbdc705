"""A job on the target must make fewer steps per second while the fault is in, as the plan says."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gameday.checks.facts import stop_reason
from gameday.checks.verdict import Status, Verdict
from gameday.documents.percent import format_percent
from gameday.history.events import FaultInjected, JobStepSeen, Record, StepStarted
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.values.results import Step

ORDER = 61


@dataclass(frozen=True)
class Pace:
    """A container's steps per second before the fault and while it was in; None: not known."""

    before: float | None
    during: float | None
    evidence: tuple[int, ...]

    @property
    def share(self) -> float | None:
        """The rate during the fault as a share of the rate before."""
        return None if self.during is None or not self.before else self.during / self.before


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    bound = plan.expect.job.slows_below if plan.expect.job else None
    if bound is None:
        return []
    begin = min((fault.written_at for fault in history.of(FaultInjected)), default=None)
    if begin is None:
        return [_verdict(bound, Status.UNKNOWN, f"not reached: {stop_reason(history)}")]
    paces = [pace for pace in _paces(history, begin) if pace.before]
    known = [(pace.share, pace) for pace in paces if pace.share is not None]
    if not paces:
        return [_verdict(bound, Status.UNKNOWN, "too few steps were seen before the fault to know their rate")]
    if len(known) < len(paces):
        return [_verdict(bound, Status.UNKNOWN, "too few steps were seen while the fault was in to know their rate")]
    share, fastest = max(known, key=lambda one: one[0])
    status = Status.HELD if share < bound else Status.BROKEN
    why = "" if share < bound else "the job, or a rank of it, is as fast as before, or nearly"
    measured = f"{share:.0%}: {fastest.during:.3g} steps/s, before {fastest.before:.3g}"
    return [_verdict(bound, status, why, measured, fastest.evidence)]


def _paces(history: History, begin: datetime) -> list[Pace]:
    """Return the pace of each container that printed steps before the fault.

    Before: from the log's first step to the last one seen before the fault. During: from the first step after the fault
    went in to the last one seen before the recovery, which takes the fault out, began.
    """
    recovers = [record.at for record, event in history.with_times(StepStarted) if event.step is Step.RECOVER]
    seen: dict[tuple[str, int], list[tuple[Record, JobStepSeen]]] = {}
    for record, event in history.with_times(JobStepSeen):
        if event.first_at <= begin and (not recovers or event.last_at <= recovers[0]):
            seen.setdefault((event.uid, event.restarts), []).append((record, event))
    found = []
    for notes in seen.values():
        before = [one for one in notes if one[1].last_at <= begin]
        after = [one for one in notes if one[1].last_at > begin]
        old = before[-1][1] if before else None
        found.append(
            Pace(
                before=_rate(old.first_at, old.first_step, old.last_at, old.last_step) if old else None,
                during=_rate_between(after[0][1], after[-1][1]) if after else None,
                evidence=tuple(record.seq for record, _ in (*before[-1:], *after[:1], *after[1:][-1:])),
            )
        )
    return found


def _rate_between(first: JobStepSeen, last: JobStepSeen) -> float | None:
    return _rate(first.last_at, first.last_step, last.last_at, last.last_step)


def _rate(begin: datetime, first: int, end: datetime, last: int) -> float | None:
    """Return steps per second; None if no time passed."""
    seconds = (end - begin).total_seconds()
    return (last - first) / seconds if seconds > 0 and last > first else None


def _verdict(bound: float, status: Status, why: str, measured: str = "", evidence: tuple[int, ...] = ()) -> Verdict:
    return Verdict(
        check="job-slows",
        expectation="The fault slows the job down",
        bound=f"< {format_percent(bound)} of its steps per second before",
        measured=measured,
        status=status,
        step=Step.VERIFY_TAINT,
        why=why,
        evidence=evidence,
    )
