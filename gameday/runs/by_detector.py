"""Seasons of several detectors as one matrix: a row for each fault, a column for each detector."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from pydantic import Field

from gameday.checks.outcome import RunOutcome
from gameday.corpus.load import cases_by_plan
from gameday.corpus.models import Answer, Case
from gameday.corpus.plays import why_not_played
from gameday.detectors.signals import Signal
from gameday.runs.cells import CellState, CoverageCell
from gameday.runs.detections import OF_THE_DETECTOR, OF_THE_KUBELET
from gameday.runs.matrix import FaultRow
from gameday.runs.pages import PageModel, RenderedPage, write_page
from gameday.runs.scores import RESAMPLES, Play, Score, score
from gameday.runs.season_page import Coverage, read_coverage
from gameday.runs.season_record import LeftOut
from gameday.values.results import Cleanliness

ACTS = (Signal.CONDITION, Signal.TAINT, Signal.ALLOCATABLE)
"""Signals by which a detector calls the node broken or takes it out of service; an Event or a line is only a note."""
NOT_PLAYED_OUT = (RunOutcome.REFUSED, RunOutcome.ABORTED)
_COUNTS_AS_NEITHER = (CellState.UNKNOWN, CellState.NOT_PLAYED)


class DetectorAnswer(PageModel):
    """A detector's answer in one play, with the signals that it gave itself, in the order of time."""

    state: CellState
    signals: tuple[CoverageCell, ...] = ()
    why: str = ""
    left: str = Field(default="", description="why the node of the run was left dirty; empty if it was not")
    stands: str | None = Field(default=None, description="what it claimed and still stood after the repair")
    run: str = Field(default="", description="the run's folder, from the page's; empty if there is none")

    @property
    def seconds(self) -> float | None:
        """The time from the fault going in to the first signal; None if none came."""
        return self.signals[0].seconds if self.signals else None

    @property
    def acted(self) -> bool:
        """True if it called a node broken, or took one out of service."""
        return self.state is CellState.WRONG or any(one.signal in ACTS for one in self.signals)

    def play(self, case: Case) -> Play | None:
        """Return it as a play of the case; None for one that counts as neither."""
        if self.state in _COUNTS_AS_NEITHER:
            return None
        cleared = None if self.stands is None or not self.acted else not (self.stands or self.left)
        must_act = case.answer is Answer.ACT
        return Play(case.name, must_act=must_act, acted=self.acted, seconds=self.seconds, cleared=cleared)


class DetectorCell(PageModel):
    """A detector's plays of one fault."""

    plays: tuple[DetectorAnswer, ...]
    score: Score | None = Field(default=None, description="None if the corpus has no case for the fault's plan")

    @property
    def worst(self) -> DetectorAnswer:
        """The play to show first: a wrong or a missing one before one in which all went well."""
        states = list(CellState)
        return max(self.plays, key=lambda one: (one.state not in _COUNTS_AS_NEITHER, states.index(one.state)))

    @property
    def counts(self) -> str:
        """Its plays in a few words; empty for a single one."""
        states = [one.state for one in self.plays]
        said = ", ".join(f"{states.count(state)} {state}" for state in CellState if state in states)
        return said if len(states) > 1 else ""


class DetectorColumn(PageModel):
    """A detector, with the sum of its answers to the faults."""

    name: str
    version: str = Field(default="", description="as its guest file names it; empty for ours")
    seasons: tuple[str, ...] = Field(description="its seasons' folders, from the page's")
    commands: tuple[str, ...] = Field(description="shell lines that play its seasons again")
    played: int = Field(description="plays that count")
    neither: int = Field(description="plays that could not be judged, and count as neither")
    noticed: int = Field(description="plays in which it gave a signal, wrongly or not")
    wrong: int = Field(description="plays in which it acted wrongly")
    score: Score


class DetectorRow(PageModel):
    """A fault, with a cell for each column."""

    plan: str
    title: str
    layer: str
    answer: str = Field(default="", description="act or leave, by the corpus; empty if it has no case for the plan")
    why: str = ""
    link: str = ""
    cells: tuple[DetectorCell, ...]


class DetectorMatrix(PageModel):
    """The content of detectors.json."""

    columns: tuple[DetectorColumn, ...]
    rows: tuple[DetectorRow, ...]
    wrong_costs: float = Field(description="what a wrong action costs, in missed faults")
    not_played: tuple[LeftOut, ...] = Field(description="cases of the corpus without a play in these seasons")


def compare_detectors(
    seasons: Sequence[tuple[str, Path]], reports: Path, rendered_at: datetime, wrong_costs: float = 1
) -> RenderedPage[DetectorMatrix]:
    """Write detectors.html and detectors.json into a folder, from the coverage.json of seasons.

    Args:
        seasons: The detector's name and the season's folder. Seasons of one name are one column, in which every run
            that was played to its end counts.
        reports: The folder to write into.
        rendered_at: Now.
        wrong_costs: What a wrong action costs, in missed faults.

    Raises:
        OSError: A file cannot be read or written.
        ValueError: A coverage.json holds something else.
    """
    found: dict[str, dict[Path, Coverage]] = {}
    for name, folder in seasons:
        covered = read_coverage(folder)
        found.setdefault(name or str(covered.record.guest or "ours"), {})[folder] = covered
    matrix = _matrix(found, reports.resolve(), wrong_costs)
    return write_page(reports / "detectors", "detectors.html", matrix, rendered_at, resamples=RESAMPLES)


def _matrix(found: Mapping[str, Mapping[Path, Coverage]], reports: Path, wrong_costs: float) -> DetectorMatrix:
    faults: dict[str, FaultRow] = {}
    columns, cells = [], []
    for name, seasons in found.items():
        mine: dict[str, list[DetectorAnswer]] = {}
        for row, run in _played(seasons, reports):
            faults[row.plan] = row
            mine.setdefault(row.plan, []).append(_answer(row, run))
        columns.append(_column(name, seasons, reports, mine, wrong_costs))
        out = {one.plan: one.why for covered in seasons.values() for one in covered.left_out}
        absent = {plan: [DetectorAnswer(state=CellState.NOT_PLAYED, why=why)] for plan, why in out.items()}
        cells.append({plan: _cell(plan, answers, wrong_costs) for plan, answers in {**absent, **mine}.items()})
    never = DetectorAnswer(state=CellState.NOT_PLAYED, why="no season named here has this plan")
    ordered = sorted(faults.values(), key=lambda row: (row.layer, row.plan))
    return DetectorMatrix(
        columns=tuple(columns),
        rows=tuple(_row(row, [one.get(row.plan, DetectorCell(plays=(never,))) for one in cells]) for row in ordered),
        wrong_costs=wrong_costs,
        not_played=tuple(_left_out(faults)),
    )


def _left_out(faults: Mapping[str, FaultRow]) -> Iterator[LeftOut]:
    for plan, case in cases_by_plan().items():
        if plan not in faults:
            why = why_not_played(case) or "no season named here has its plan"
            yield LeftOut(plan=case.name, title=case.title, why=why)


def _row(row: FaultRow, cells: Sequence[DetectorCell]) -> DetectorRow:
    case = cases_by_plan().get(row.plan)
    return DetectorRow(
        plan=row.plan,
        title=row.title,
        layer=row.layer,
        answer=str(case.answer) if case else "",
        why=case.why if case else "",
        link=case.link if case else "",
        cells=tuple(cells),
    )


def _cell(plan: str, answers: Sequence[DetectorAnswer], wrong_costs: float) -> DetectorCell:
    case = cases_by_plan().get(plan)
    plays = [play for one in answers if case and (play := one.play(case))]
    return DetectorCell(plays=tuple(answers), score=score(plays, wrong_costs) if plays else None)


def _played(seasons: Mapping[Path, Coverage], reports: Path) -> Iterator[tuple[FaultRow, str]]:
    """Yield the row of every run with the run's folder, the oldest season first."""
    for folder, covered in sorted(seasons.items(), key=lambda one: one[1].record.started):
        places = {
            place.run_id: place.reports(folder.resolve().parent) / place.run_id for place in covered.record.places
        }
        for row in covered.matrix.rows:
            run = places.get(row.run_id)
            yield row, os.path.relpath(run, reports) if run and run.is_dir() else ""


def _answer(row: FaultRow, run: str) -> DetectorAnswer:
    case = cases_by_plan().get(row.plan)
    cells = [row.cell(signal) for signal in OF_THE_DETECTOR]
    own = sorted(filter(_is_its_own, cells), key=lambda cell: cell.seconds or 0.0)
    act = next((f"{cell.signal} {cell.what}" for cell in own if cell.signal in ACTS), "")
    unknown, missed = ([cell for cell in cells if cell.state is one] for one in (CellState.UNKNOWN, CellState.MISSED))
    if row.outcome in NOT_PLAYED_OUT:  # also with a signal: else only the silent ones of such runs would not count
        state, why = CellState.UNKNOWN, row.why
    elif row.elsewhere:
        state, why = CellState.WRONG, f"it wrote to nodes without a fault: {row.elsewhere}"
    elif act and case and case.answer is Answer.LEAVE:
        state, why = CellState.WRONG, f"it acted on a node that had to stay: {act}"
    elif own:
        state, why = CellState.SEEN, ""
    elif unknown or row.blind:
        state, why = CellState.UNKNOWN, unknown[0].why if unknown else row.blind
    elif missed:
        state, why = CellState.MISSED, missed[0].why
    elif case and case.answer is Answer.ACT:
        state, why = CellState.MISSED, "somebody must act, and nothing came; its profile expects nothing, either"
    else:
        state, why = CellState.NOT_EXPECTED, "nothing was to come, and nothing came"
    left = row.why if row.cleanliness is Cleanliness.DIRTY else ""
    return DetectorAnswer(state=state, signals=tuple(own), why=why, left=left, stands=row.stands, run=run)


def _is_its_own(cell: CoverageCell) -> bool:
    """Return True if the detector gave the signal: of those that nobody expected, others may have given some."""
    others = cell.signal is Signal.ALLOCATABLE or (
        cell.signal is Signal.CONDITION and cell.what.startswith(tuple(f"{name}=" for name in OF_THE_KUBELET))
    )
    return cell.state is CellState.SEEN or (cell.state is CellState.UNEXPECTED and not others)


def _column(
    name: str,
    seasons: Mapping[Path, Coverage],
    reports: Path,
    mine: Mapping[str, Sequence[DetectorAnswer]],
    wrong_costs: float,
) -> DetectorColumn:
    answers = [one for some in mine.values() for one in some]
    counted = [one for one in answers if one.state not in _COUNTS_AS_NEITHER]
    cases = cases_by_plan()
    plays = [one.play(cases[plan]) for plan, some in mine.items() if plan in cases for one in some]
    versions = dict.fromkeys(one.record.guest.version for one in seasons.values() if one.record.guest)
    return DetectorColumn(
        name=name,
        version=", ".join(versions),
        seasons=tuple(os.path.relpath(one.resolve(), reports) for one in seasons),
        commands=tuple(dict.fromkeys(one.record.command for one in seasons.values())),
        played=len(counted),
        neither=len(answers) - len(counted),
        noticed=sum(one.seconds is not None for one in counted),
        wrong=sum(one.state is CellState.WRONG for one in counted),
        score=score([play for play in plays if play], wrong_costs),
    )
