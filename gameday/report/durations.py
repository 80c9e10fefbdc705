"""The durations that a run is judged by, from the verdicts and the history."""

from __future__ import annotations

from collections.abc import Iterable

from gameday.checks.verdict import Status, Verdict
from gameday.history.events import (
    FaultInjected,
    NodeReturned,
    QaChecked,
    Record,
    Remediated,
    RepairHopSeen,
    StepEnded,
    StepStarted,
)
from gameday.report.noticed import first_taint
from gameday.report.run_folder import RunFolder
from gameday.report.summary import DurationKind, RunDuration
from gameday.values.nodes import NodeRole
from gameday.values.results import RepairHop, Step

SINCE = {
    DurationKind.ALERT: "fault in → alert firing",
    DurationKind.TAINT: "fault in → node tainted",
    DurationKind.RECOVER: "recovery begun → node remediated",
    DurationKind.QA: "QA begun → every check passed",
    DurationKind.RETURN: "fault in → node takes work again",
    DurationKind.CANARY_UNDER_LOAD: "99 of 100 of an ordinary client’s small requests took no longer",
    DurationKind.CANARY_GAP: "longest time in which that client had no answer",
    DurationKind.CANARY_AFTER: "99 of 100 with the load gone",
}


_SEVERITY = [Status.NOT_ASKED, Status.HELD, Status.UNKNOWN, Status.BROKEN]


def worst_per_check(verdicts: Iterable[Verdict]) -> dict[str, Status]:
    """Return the worst verdict of each check; one that was not asked is better than all others."""
    worst: dict[str, Status] = {}
    for verdict in verdicts:
        worst[verdict.check] = max(worst.get(verdict.check, verdict.status), verdict.status, key=_SEVERITY.index)
    return worst


def durations(run: RunFolder) -> tuple[RunDuration, ...]:
    """Return the durations for a run of its kind: a GPU node's way back, or the API canary's requests."""
    alert = _from_checks(run, "alert-fires", DurationKind.ALERT)
    if run.started and run.started.role is NodeRole.API_CLIENT:
        return (
            alert,
            _from_checks(run, "api-canary-latency", DurationKind.CANARY_UNDER_LOAD),
            _from_checks(run, "api-canary-gap", DurationKind.CANARY_GAP),
            _from_checks(run, "api-canary-after", DurationKind.CANARY_AFTER),
        )
    return (
        alert,
        _to_taint(run),
        _to_recover(run),
        _to_qa(run),
        _to_return(run),
    )


def _from_checks(run: RunFolder, check: str, measure: DurationKind) -> RunDuration:
    """Return the slowest verdict of the check; one that was not measured does not hide one that was."""
    verdicts = [verdict for verdict in run.verdicts if verdict.check == check]
    measured = [verdict for verdict in verdicts if verdict.seconds is not None]
    shown: Verdict | None = max(measured, key=lambda v: v.seconds or 0.0) if measured else next(iter(verdicts), None)
    if shown is None:
        return RunDuration(measure=measure, seconds=None)
    status = worst_per_check(verdicts)[check]
    return RunDuration(measure=measure, seconds=shown.seconds, bound=shown.bound, status=status, dated=shown.dated)


def _to_taint(run: RunFolder) -> RunDuration:
    """Return the time to the taint that the plan expects; if it expects none, to the first that came."""
    if any(verdict.check == "taint-set" for verdict in run.verdicts):
        return _from_checks(run, "taint-set", DurationKind.TAINT)
    came = [run.offset_s(taint.at) for node in run.target_names if (taint := first_taint(run, node))]
    return RunDuration(measure=DurationKind.TAINT, seconds=max(0.0, *came) if came else None)


def _to_recover(run: RunFolder) -> RunDuration:
    ends = [record for record, event in run.history.with_times(Remediated) if event.ok]
    bound = next((verdict for verdict in run.verdicts if verdict.check == "remediation"), None)
    seconds = _between(run, Step.RECOVER, ends) if ends else _of_cluster_repair(run)
    return RunDuration(
        measure=DurationKind.RECOVER,
        seconds=seconds,
        bound=bound.bound if bound else "",
        status=bound.status if bound else None,
    )


def _of_cluster_repair(run: RunFolder) -> float | None:
    """Return the seconds from the start of the cluster's own repair to the node being Ready, for the slowest node."""
    took = []
    for node in run.target_names:
        seen = {event.hop: event.at for _, event in run.history.about(RepairHopSeen, node)}
        if RepairHop.REPAIR_BEGUN in seen and RepairHop.READY in seen:
            took.append((seen[RepairHop.READY] - seen[RepairHop.REPAIR_BEGUN]).total_seconds())
    return max(took, default=None)


def _to_qa(run: RunFolder) -> RunDuration:
    """Return the time from QA's start to its last result, or None unless every check passed."""
    passed = all(event.ok for event in run.history.of(QaChecked))
    ended = any(event.step == Step.QA_NODE for event in run.history.of(StepEnded))
    ends = [record for record, _ in run.history.with_times(QaChecked)] if passed and ended else []
    return RunDuration(measure=DurationKind.QA, seconds=_between(run, Step.QA_NODE, ends))


def _between(run: RunFolder, step: Step, ends: list[Record]) -> float | None:
    """Return the seconds from the step's start to the last of `ends`; None if the clock went back."""
    start = next((record for record, event in run.history.with_times(StepStarted) if event.step == step), None)
    if not start or not ends:
        return None
    return _apart(start, ends[-1])


def _apart(start: Record, end: Record) -> float | None:
    """Return the seconds between two records, by the monotonic clock if one process wrote both."""
    if start.boot == end.boot:
        return max(0.0, end.monotonic - start.monotonic)
    seconds = (end.at - start.at).total_seconds()
    return seconds if seconds >= 0 else None


def _to_return(run: RunFolder) -> RunDuration:
    ends = [record.at for record, _ in run.history.with_times(NodeReturned)]
    ends += sorted(event.at for event in run.history.of(RepairHopSeen) if event.hop is RepairHop.RETURNED)
    broken = bool(run.history.of(FaultInjected))
    seconds = run.offset_s(ends[-1]) if ends and broken else None
    return RunDuration(measure=DurationKind.RETURN, seconds=seconds if seconds is None or seconds >= 0 else None)
