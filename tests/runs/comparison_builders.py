"""Comparisons in code: records, and game-days in their folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gameday.checks.outcome import EXIT_CODES, RunOutcome, RunResult
from gameday.checks.verdict import Status, Verdict
from gameday.report.figure import Figure
from gameday.runs.comparison import PlayedRun
from gameday.runs.comparison_record import ArmRecord, ComparisonRecord
from gameday.runs.season_record import ArmRun, Assignment
from gameday.values.results import Cleanliness
from tests.report.run_builder import NODE, START, at


def arm(name: str, *, may_break: Sequence[str] = (), must_break: Sequence[str] = (), title: str = "") -> ArmRecord:
    return ArmRecord(
        name=name,
        title=title or name,
        changes=("recover.remediation: reboot",),
        may_break=tuple(may_break),
        must_break=tuple(must_break),
    )


def record(*arms: ArmRecord, repetitions: int = 1, stopped: str = "", title: str = "Two repairs") -> ComparisonRecord:
    runs = [
        Assignment(
            run_id=f"arms-{repetition}-{one.name}",
            plan="two",
            asked_as="two",
            targets=(NODE,),
            arm=ArmRun(comparison="arms-two", arm=one.name, repetition=repetition),
        )
        for repetition in range(1, repetitions + 1)
        for one in arms
    ]
    return ComparisonRecord(
        id="arms-two",
        plan="two",
        title=title,
        hypothesis="One is faster.",
        cluster="lab",
        command="gameday run two",
        seed=1,
        repetitions=repetitions,
        arms=arms,
        runs=tuple(runs),
        started=START,
        ended=at(90),
        stopped=stopped,
    )


def verdict(check: str, status: Status) -> Verdict:
    return Verdict(check=check, expectation=f"{check} holds", status=status)


def result(outcome: RunOutcome, cleanliness: Cleanliness = Cleanliness.CLEAN) -> RunResult:
    return RunResult(outcome=outcome, cleanliness=cleanliness, exit_code=EXIT_CODES[outcome], why=f"It {outcome}.")


def played(
    place: Assignment,
    outcome: RunOutcome = RunOutcome.PASSED,
    *,
    verdicts: Sequence[Verdict] = (),
    seconds: float | None = None,
) -> PlayedRun:
    figures = () if seconds is None else (Figure(name="time to return", unit="s", value=seconds),)
    own = result(outcome)
    return PlayedRun(place=place, result=own, own=own, verdicts=tuple(verdicts), figures=figures)


def write_record(folder: Path, content: ComparisonRecord) -> Path:
    content.save(folder / content.id)
    return folder / content.id
