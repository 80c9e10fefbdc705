"""The durations a run is judged by, whether the cluster noticed, and both as the run's summary."""

from __future__ import annotations

from collections.abc import Iterable

from gameday.checks.verdict import Status, Verdict
from gameday.history.events import FaultInjected, NodeReturned, QaChecked, Record, Remediated, StepEnded, StepStarted
from gameday.report.run_folder import Run
from gameday.report.summary import Measure, Noticed, Number, Summary
from gameday.values.results import Step

SINCE = {
    Measure.ALERT: "fault in → alert firing",
    Measure.TAINT: "fault in → node tainted",
    Measure.RECOVER: "recovery begun → node remediated",
    Measure.QA: "QA begun → every check passed",
    Measure.RETURN: "fault in → node takes work again",
}


def summarise(run: Run) -> Summary | None:
    """None for a history without a start: no run can be told apart by it."""
    started, records = run.started, run.history.records
    if started is None:
        return None
    return Summary(
        run_id=started.run_id,
        plan=started.plan_name,
        title=run.plan.title if run.plan else started.plan_name,
        plan_sha256=started.plan_sha256,
        cluster=started.cluster_name or started.cluster,
        cluster_id=started.cluster_id or started.cluster_uid,
        rehearsal=started.trigger == "rehearsal",
        detector=run.plan.detector if run.plan else None,
        fault=run.plan.fault.type if run.plan else None,
        targets=run.target_names,
        started=records[0].at,
        seconds=(records[-1].at - records[0].at).total_seconds(),
        outcome=run.result.outcome,
        cleanliness=run.result.cleanliness,
        exit_code=run.result.exit_code,
        why=run.result.why,
        noticed=noticed(run),
        numbers=numbers(run),
        checks=worst_per_check(run.verdicts),
    )


_SEVERITY = [Status.HELD, Status.UNKNOWN, Status.BROKEN]


def worst_per_check(verdicts: Iterable[Verdict]) -> dict[str, Status]:
    worst: dict[str, Status] = {}
    for verdict in verdicts:
        worst[verdict.check] = max(worst.get(verdict.check, Status.HELD), verdict.status, key=_SEVERITY.index)
    return worst


NOTICES = {
    "alert-fires": ("alert firing", "no alert fired"),
    "taint-set": ("node tainted", "the node was not tainted"),
    "cordoned": ("node cordoned", "the node was not cordoned"),
    "condition-set": ("condition set", "no condition was set"),
    "label-set": ("label set", "no label was set"),
    "event-written": ("Event written", "no Event was written"),
    "allocatable-falls": ("fewer GPUs offered", "no GPU was withdrawn"),
}
"""The checks on what a cluster does by itself when it notices, and the words for it having happened, and not."""


def notices(run: Run) -> list[Verdict]:
    """The verdicts on everything that the plan says the cluster must do by itself."""
    return [verdict for verdict in run.verdicts if verdict.check in NOTICES]


def noticed(run: Run) -> Noticed:
    """Folded from `notices`; what came late was noticed, since it was seen."""
    asked = notices(run)
    if not asked:
        return Noticed.NOT_ASKED if run.plan else Noticed.UNKNOWN
    if not run.history.of(FaultInjected):
        return Noticed.UNKNOWN
    seen = [verdict for verdict in asked if verdict.seconds is not None]
    missed = [verdict for verdict in asked if verdict.seconds is None and verdict.status is Status.BROKEN]
    if len(seen) + len(missed) < len(asked) and not (seen and missed):
        return Noticed.UNKNOWN
    return Noticed.YES if not missed else Noticed.PARTLY if seen else Noticed.NO


def numbers(run: Run) -> tuple[Number, ...]:
    return (
        _from_checks(run, "alert-fires", Measure.ALERT),
        _from_checks(run, "taint-set", Measure.TAINT),
        _to_recover(run),
        _to_qa(run),
        _to_return(run),
    )


def _from_checks(run: Run, check: str, measure: Measure) -> Number:
    """The slowest verdict of the check; one that was not measured hides none that was."""
    verdicts = [verdict for verdict in run.verdicts if verdict.check == check]
    measured = [verdict for verdict in verdicts if verdict.seconds is not None]
    shown: Verdict | None = max(measured, key=lambda v: v.seconds or 0.0) if measured else next(iter(verdicts), None)
    if shown is None:
        return Number(measure=measure, seconds=None)
    status = worst_per_check(verdicts)[check]
    return Number(measure=measure, seconds=shown.seconds, bound=shown.bound, status=status)


def _to_recover(run: Run) -> Number:
    ends = [record for record, event in run.history.with_times(Remediated) if event.ok]
    bound = next((verdict for verdict in run.verdicts if verdict.check == "remediation"), None)
    seconds = _between(run, Step.RECOVER, ends)
    return Number(
        measure=Measure.RECOVER,
        seconds=seconds,
        bound=bound.bound if bound else "",
        status=bound.status if bound else None,
    )


def _to_qa(run: Run) -> Number:
    """From QA's start to its last result, and only where every check passed: a failed QA has no 'time to pass'."""
    passed = all(event.ok for event in run.history.of(QaChecked))
    ended = any(event.step == Step.QA_NODE for event in run.history.of(StepEnded))
    ends = [record for record, _ in run.history.with_times(QaChecked)] if passed and ended else []
    return Number(measure=Measure.QA, seconds=_between(run, Step.QA_NODE, ends))


def _between(run: Run, step: Step, ends: list[Record]) -> float | None:
    """None, too, where the clock went back in between: a duration of nothing would be a lie."""
    start = next((record for record, event in run.history.with_times(StepStarted) if event.step == step), None)
    if not start or not ends:
        return None
    return _apart(start, ends[-1])


def _apart(start: Record, end: Record) -> float | None:
    """Seconds between two records, by the monotonic clock where one process wrote both."""
    if start.boot == end.boot:
        return max(0.0, end.monotonic - start.monotonic)
    seconds = (end.at - start.at).total_seconds()
    return seconds if seconds >= 0 else None


def _to_return(run: Run) -> Number:
    ends = [record.at for record, _ in run.history.with_times(NodeReturned)]
    broken = bool(run.history.of(FaultInjected))
    seconds = run.offset_s(ends[-1]) if ends and broken else None
    return Number(measure=Measure.RETURN, seconds=seconds if seconds is None or seconds >= 0 else None)
