"""The strip at the top: the outcome, the cluster's state, one sentence why, and the four numbers people ask for."""

from __future__ import annotations

from pydantic import BaseModel

from gameday.checks.outcome import RunResult
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import NodeReturned, QaChecked, Record, Remediated, RunStarted, Step, StepEnded, StepStarted
from gameday.report.run import Run

ORDER = 0
TITLE = "Verdict"


class BigNumber(BaseModel):
    label: str
    seconds: float | None
    since: str
    bound: str = ""
    status: Status | None = None


class VerdictStrip(BaseModel):
    result: RunResult
    trigger: str
    hypothesis: str
    held: int
    broken: int
    unknown: int
    numbers: tuple[BigNumber, ...]
    problems: int


def build(run: Run) -> VerdictStrip:
    started = run.history.first(RunStarted)
    count = [verdict.status for verdict in run.verdicts].count
    return VerdictStrip(
        result=run.result,
        trigger=_trigger(started) if started else "",
        hypothesis=run.plan.hypothesis if run.plan else "",
        held=count(Status.HELD),
        broken=count(Status.BROKEN),
        unknown=count(Status.UNKNOWN),
        numbers=(
            _from_checks(run, "alert-fires", "Time to alert", "fault in → alert firing"),
            _from_checks(run, "taint-set", "Time to taint", "fault in → node tainted"),
            _to_recover(run),
            _to_qa(run),
            _to_return(run),
        ),
        problems=len(run.problems),
    )


def _trigger(started: RunStarted) -> str:
    by = f"by {started.operator}" if started.operator else ""
    return {"rehearsal": "Rehearsal (virtual GPUs)", "manual": f"Manual {by}", "scheduled": "Scheduled"}[
        started.trigger
    ]


def _from_checks(run: Run, check: str, label: str, since: str) -> BigNumber:
    """The slowest verdict of the check; one that was not measured hides none that was."""
    verdicts = [verdict for verdict in run.verdicts if verdict.check == check]
    measured = [verdict for verdict in verdicts if verdict.seconds is not None]
    shown: Verdict | None = max(measured, key=lambda v: v.seconds or 0.0) if measured else next(iter(verdicts), None)
    if shown is None:
        return BigNumber(label=label, seconds=None, since=since)
    return BigNumber(label=label, seconds=shown.seconds, since=since, bound=shown.bound, status=shown.status)


def _to_recover(run: Run) -> BigNumber:
    ends = [record for record, event in run.history.with_times(Remediated) if event.ok]
    bound = next((verdict for verdict in run.verdicts if verdict.check == "remediation"), None)
    number = _between(run, "Time to recover", Step.RECOVER, ends, "recovery begun → node remediated")
    return number.model_copy(update={"bound": bound.bound, "status": bound.status} if bound else {})


def _to_qa(run: Run) -> BigNumber:
    """From QA's start to its last result, and only where every check passed: a failed QA has no 'time to pass'."""
    passed = all(event.ok for event in run.history.of(QaChecked))
    ended = any(event.step == Step.QA_NODE for event in run.history.of(StepEnded))
    ends = [record for record, _ in run.history.with_times(QaChecked)] if passed and ended else []
    return _between(run, "Time to QA pass", Step.QA_NODE, ends, "QA begun → every check passed")


def _between(run: Run, label: str, step: Step, ends: list[Record], since: str) -> BigNumber:
    start = next((record for record, event in run.history.with_times(StepStarted) if event.step == step), None)
    seconds = max(0.0, (ends[-1].at - start.at).total_seconds()) if start and ends else None
    return BigNumber(label=label, seconds=seconds, since=since)


def _to_return(run: Run) -> BigNumber:
    ends = [record for record, _ in run.history.with_times(NodeReturned)]
    seconds = run.offset_s(ends[-1].at) if ends else None
    return BigNumber(label="Time to return", seconds=seconds, since="fault in → node takes work again")
