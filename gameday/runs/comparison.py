"""The arms of a comparison side by side: verdicts by arm, figures by arm with spread and ratio. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from pydantic import Field

from gameday.checks.facts import first_few
from gameday.checks.outcome import RunOutcome, RunResult
from gameday.checks.verdict import Status, Verdict
from gameday.plain_file import read_plain
from gameday.plan.arms import ExpectedRatio
from gameday.report.figure import Figure
from gameday.report.summary import virtual_words
from gameday.runs.comparison_record import ArmRecord, ComparisonRecord
from gameday.runs.season_record import Assignment, SeasonResult, fold_season
from gameday.values.models import FrozenModel

NOT_PLAYED = "it ended before every game-day was played"


@dataclass(frozen=True)
class PlayedRun:
    """A game-day of the comparison, as read from its folder."""

    place: Assignment
    result: RunResult
    """The result as that of its arm (`gameday.runs.arm_result`)."""
    own: RunResult
    """The result as in the run's own report, which does not know of arms."""
    verdicts: tuple[Verdict, ...]
    figures: tuple[Figure, ...]
    virtual: bool = False
    """True if its GPUs are virtual."""

    @property
    def repetition(self) -> int:
        """The repetition that it belongs to."""
        return self.place.arm.repetition if self.place.arm else 1


class MemberRow(FrozenModel):
    """A game-day in its arm's column; `outcome` None if it was not played."""

    run_id: str
    repetition: int
    outcome: RunOutcome | None
    own_outcome: RunOutcome | None = Field(description="in the run's own report, which knows of no arm")
    why: str


class ArmColumn(FrozenModel):
    """An arm with its game-days, in the order of their repetitions."""

    arm: ArmRecord
    runs: tuple[MemberRow, ...]


class VerdictCell(FrozenModel):
    """Counts of an arm's repetitions in which an expectation held, broke, and could not be judged."""

    held: int = 0
    broken: int = 0
    unknown: int = 0
    wanted: Literal["", "may break", "must break"] = Field(default="", description="what the arm says of it")

    @property
    def status(self) -> Status:
        """The worst of the repetitions; NOT_ASKED if there is none."""
        if self.broken:
            return Status.BROKEN
        if self.unknown:
            return Status.UNKNOWN
        return Status.HELD if self.held else Status.NOT_ASKED

    @property
    def is_as_wanted(self) -> bool:
        """True if no repetition speaks against the comparison."""
        if self.wanted == "must break":
            return not self.held and not self.unknown
        return bool(self.wanted) or not (self.broken or self.unknown)


class VerdictRow(FrozenModel):
    """An expectation, with a cell for each arm, in the record's order."""

    check: str
    expectation: str
    cells: tuple[VerdictCell, ...]


class FigureCell(FrozenModel):
    """A figure of an arm over its repetitions. Ratios are to the first arm; None if that measured nothing, or 0."""

    values: tuple[float | None, ...] = Field(description="by repetition; None if a run did not measure it")
    median: float | None
    least: float | None
    most: float | None
    ratio: float | None = Field(description="of the medians")
    ratio_least: float | None = Field(description="the smallest of the ratios within one repetition")
    ratio_most: float | None


class FigureRow(FrozenModel):
    """A figure, with a cell for each arm, in the record's order."""

    name: str
    unit: str
    cells: tuple[FigureCell, ...]


class RatioRow(FrozenModel):
    """The expected ratio of two arms' figures, and the ratio found."""

    expected: ExpectedRatio
    ratio: float | None = Field(description="of the medians; None if one of the arms did not measure it, or 0")
    status: Status


class Comparison(FrozenModel):
    """The content of comparison.json."""

    record: ComparisonRecord
    result: SeasonResult
    arms: tuple[ArmColumn, ...]
    ratios: tuple[RatioRow, ...] = Field(description="in the plan's order")
    expectations: tuple[VerdictRow, ...]
    figures: tuple[FigureRow, ...]
    virtual: str = Field(default="", description="that GPUs of its game-days are virtual; empty if none are")
    problems: tuple[str, ...] = Field(description="sentences about figures that could not be read")


def read_comparison(folder: Path) -> Comparison:
    """Read comparison.json. Raises OSError, or ValueError if the file holds something else."""
    return Comparison.model_validate_json(read_plain(folder / "comparison.json"))


def compare(record: ComparisonRecord, played: Sequence[PlayedRun], problems: Sequence[str] = ()) -> Comparison:
    """Set the arms beside each other.

    Args:
        record: The comparison's record.
        played: Its game-days that have a folder, in any order.
        problems: Sentences about what could not be read.
    """
    by_arm = [_of_arm(arm, played) for arm in record.arms]
    missing = len(record.runs) - len(played)
    stopped = record.stopped or (NOT_PLAYED if missing else "")
    figures = _figures(record.repetitions, by_arm)
    ratios = tuple(_ratio(expected, record.arms, figures) for expected in record.expect)
    results = [run.result for run in played]
    return Comparison(
        record=record,
        result=_with_ratios(fold_season(results, stopped, "comparison", _outcomes(ratios, results)), ratios),
        ratios=ratios,
        arms=tuple(_column(arm, record, played) for arm in record.arms),
        expectations=tuple(_expectations(record.arms, by_arm)),
        figures=tuple(figures),
        virtual=virtual_words([run.virtual for run in played]),
        problems=tuple(problems),
    )


def _ratio(expected: ExpectedRatio, arms: Sequence[ArmRecord], figures: Sequence[FigureRow]) -> RatioRow:
    names = [arm.name for arm in arms]
    row = next((row for row in figures if row.name == expected.figure), None)
    of, against = (row.cells[names.index(name)].median if row else None for name in (expected.of, expected.against))
    if not expected.is_bound:
        ratio = of / against if of is not None and against else None
        return RatioRow(expected=expected, ratio=ratio, status=Status.NOT_ASKED)
    if of is None or not against:
        return RatioRow(expected=expected, ratio=None, status=Status.UNKNOWN)
    status = Status.HELD if expected.holds(of / against) else Status.BROKEN
    return RatioRow(expected=expected, ratio=of / against, status=status)


def _outcomes(ratios: Sequence[RatioRow], results: Sequence[RunResult]) -> list[RunOutcome]:
    """Return what the ratios add to the outcomes of the game-days; nothing if none of these was played."""
    if all(result.outcome is RunOutcome.REFUSED for result in results):
        return []
    amounts_to = {Status.BROKEN: RunOutcome.FAILED, Status.UNKNOWN: RunOutcome.UNKNOWN}
    return [amounts_to[row.status] for row in ratios if row.status in amounts_to]


def _with_ratios(result: SeasonResult, ratios: Sequence[RatioRow]) -> SeasonResult:
    """Return the result with a sentence about ratios that do not hold, or are not known."""
    said = ""
    for status, words in ((Status.BROKEN, "Between the arms does not hold"), (Status.UNKNOWN, "Not measured")):
        if names := [f"{row.expected.figure} ({row.expected.of})" for row in ratios if row.status is status]:
            said += f" {words}: {first_few(names)}."
    return result.model_copy(update={"why": result.why + said})


def _of_arm(arm: ArmRecord, played: Sequence[PlayedRun]) -> list[PlayedRun]:
    return [run for run in played if run.place.arm and run.place.arm.arm == arm.name]


def _column(arm: ArmRecord, record: ComparisonRecord, played: Sequence[PlayedRun]) -> ArmColumn:
    found = {run.place.run_id: run for run in played}
    rows = []
    for place in record.runs:
        if place.arm and place.arm.arm == arm.name:
            run = found.get(place.run_id)
            rows.append(
                MemberRow(
                    run_id=place.run_id,
                    repetition=place.arm.repetition,
                    outcome=run.result.outcome if run else None,
                    own_outcome=run.own.outcome if run else None,
                    why=run.result.why if run else f"Not played: {record.stopped or NOT_PLAYED}.",
                )
            )
    return ArmColumn(arm=arm, runs=tuple(sorted(rows, key=lambda row: row.repetition)))


def _expectations(arms: Sequence[ArmRecord], by_arm: Sequence[Sequence[PlayedRun]]) -> list[VerdictRow]:
    keys = dict.fromkeys(
        (verdict.check, verdict.expectation) for runs in by_arm for run in runs for verdict in run.verdicts
    )
    # An arm that changes a bound or a remediation words the same check's expectation differently: side by side.
    first = {check: number for number, (check, _) in reversed(list(enumerate(keys)))}
    return [
        VerdictRow(
            check=check,
            expectation=expectation,
            cells=tuple(_verdict_cell(arm, check, expectation, runs) for arm, runs in zip(arms, by_arm, strict=True)),
        )
        for check, expectation in sorted(keys, key=lambda key: first[key[0]])
    ]


def _verdict_cell(arm: ArmRecord, check: str, expectation: str, runs: Sequence[PlayedRun]) -> VerdictCell:
    seen = [
        verdict.status
        for run in runs
        for verdict in run.verdicts
        if (verdict.check, verdict.expectation) == (check, expectation)
    ]
    return VerdictCell(
        held=seen.count(Status.HELD),
        broken=seen.count(Status.BROKEN),
        unknown=seen.count(Status.UNKNOWN),
        wanted="must break" if check in arm.must_break else "may break" if check in arm.may_break else "",
    )


def _figures(repetitions: int, by_arm: Sequence[Sequence[PlayedRun]]) -> list[FigureRow]:
    keys = dict.fromkeys((figure.name, figure.unit) for runs in by_arm for run in runs for figure in run.figures)
    rows = []
    for name, unit in keys:
        values = [_values(name, unit, repetitions, runs) for runs in by_arm]
        cells = tuple(_figure_cell(own, values[0]) for own in values)
        rows.append(FigureRow(name=name, unit=unit, cells=cells))
    return rows


def _values(name: str, unit: str, repetitions: int, runs: Sequence[PlayedRun]) -> tuple[float | None, ...]:
    by_repetition = {
        run.repetition: figure.value
        for run in runs
        for figure in reversed(run.figures)
        if (figure.name, figure.unit) == (name, unit)
    }
    return tuple(by_repetition.get(number) for number in range(1, repetitions + 1))


def _figure_cell(own: tuple[float | None, ...], first: tuple[float | None, ...]) -> FigureCell:
    seen = [value for value in own if value is not None]
    base = [value for value in first if value is not None]
    middle = median(seen) if seen else None
    pairs = [one / other for one, other in zip(own, first, strict=True) if one is not None and other]
    return FigureCell(
        values=own,
        median=middle,
        least=min(seen, default=None),
        most=max(seen, default=None),
        ratio=middle / median(base) if middle is not None and base and median(base) else None,
        ratio_least=min(pairs, default=None),
        ratio_most=max(pairs, default=None),
    )
