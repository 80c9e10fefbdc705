"""A season's page: the matrix of its runs, the answer in a sentence, gaps in words; the same as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from gameday.checks.facts import seconds_text
from gameday.detectors.signals import Signal
from gameday.plain_file import read_plain, write_each, write_whole
from gameday.report.markdown import markdown
from gameday.report.outage import RULE, OutageTotal, outage_totals
from gameday.report.page import environment
from gameday.report.summary import virtual_words
from gameday.runs.cells import CellState, CoverageCell
from gameday.runs.comparison_page import result_of_member
from gameday.runs.drawn import DrawnGameDay, drawn_game_days, drawn_headline
from gameday.runs.matrix import CoverageMatrix, FaultNoticed, FaultRow, joined
from gameday.runs.run_row import judged_run
from gameday.runs.season_record import LeftOut, SeasonRecord, SeasonResult, fold_season

_ACCENTS = {0: "passed", 1: "failed", 3: "aborted", 4: "failed", 5: "refused"}


class Coverage(BaseModel):
    """The content of coverage.json."""

    model_config = ConfigDict(frozen=True)

    record: SeasonRecord
    result: SeasonResult
    matrix: CoverageMatrix
    left_out: tuple[LeftOut, ...]
    outages: tuple[OutageTotal, ...] = ()
    virtual: str = ""
    """The words that GPUs of its game-days are virtual; empty where none are."""
    drawn: tuple[DrawnGameDay, ...] = ()
    """A random season's game-days, with those that were not played."""


@dataclass(frozen=True)
class RenderedSeason:
    html: Path
    json: Path
    result: SeasonResult
    coverage: Coverage
    unwritten: str
    """The reason why page or JSON is not as it should be; empty where both are written."""

    @property
    def drawn(self) -> str:
        """The draw of a random season in a sentence; empty for any other."""
        return drawn_headline(self.coverage.record, self.coverage.drawn)

    @property
    def markdown(self) -> str:
        """The answer, the matrix and its gaps in words."""
        answer = {"headline": headline(self.coverage.matrix.rows), "drawn": self.drawn}
        return markdown("runs", "season.md", covered=self.coverage, **answer)


@dataclass(frozen=True)
class _Number:
    name: str
    value: str
    note: str


def render_season(folder: Path, rendered_at: datetime) -> RenderedSeason:
    """Write coverage.html and coverage.json into the season's folder, from season.json and its runs' folders beside it.

    Raises OSError where it cannot be read, ValueError where season.json holds something else.
    """
    record = SeasonRecord.load(folder)
    folders = {place.run_id: place.reports(folder.parent) / place.run_id for place in record.places}
    runs = {place.run_id: run for place in record.places if (run := judged_run(folders[place.run_id]))}
    of_arms = {
        place.run_id: result_of_member(folders[place.run_id].parent, place.run_id)
        for place in record.places
        if place.arm and place.run_id in runs
    }
    result = fold_season([of_arms.get(run_id, run.result) for run_id, run in runs.items()], record.stopped)
    missing = [
        LeftOut(plan=place.plan, title=place.plan, why=record.why_not_begun(place))
        for place in record.places
        if place.run_id not in runs and place.drawn is None
    ]
    matrix = joined(run.row for run in runs.values())
    summaries = [run.summary for run in runs.values()]
    covered = Coverage(
        record=record,
        result=result,
        matrix=matrix,
        left_out=(*record.left_out, *missing),
        outages=outage_totals((one.rehearsal, one.out_of_work) if one else (False, None) for one in summaries),
        virtual=virtual_words([one.rehearsal for one in summaries if one]),
        drawn=drawn_game_days(record, runs),
    )
    html, json = folder / "coverage.html", folder / "coverage.json"
    page = _page(covered, folder.parent, rendered_at)
    unwritten = write_each({html: page, json: covered.model_dump_json(indent=1) + "\n"})
    return RenderedSeason(html, json, result, covered, unwritten)


def read_coverage(folder: Path) -> Coverage:
    """Return what a season's page says; raises OSError, and ValueError if coverage.json holds something else."""
    return Coverage.model_validate_json(read_plain(folder / "coverage.json"))


def redraw_season(folder: Path, rendered_at: datetime) -> None:
    """Write coverage.html again as coverage.json has it, with links only to what is still there.

    Raises OSError, and ValueError if coverage.json holds something else.
    """
    write_whole(folder / "coverage.html", _page(read_coverage(folder), folder.parent, rendered_at))


def _page(covered: Coverage, reports: Path, rendered_at: datetime) -> str:
    """Return the season's page; of runs and comparisons it links those that the folder `reports` holds."""
    record, matrix = covered.record, covered.matrix
    folders = {place.run_id: place.reports(reports) / place.run_id for place in record.places}
    compared = {place.arm.comparison for place in record.places if place.arm}
    return (
        environment("runs")
        .get_template("season.html")
        .render(
            record=record,
            result=covered.result,
            matrix=matrix,
            links={run: str(path.relative_to(reports)) if path.is_dir() else "" for run, path in folders.items()},
            comparisons=sorted(id for id in compared if (reports / id).is_dir()),
            left_out=covered.left_out,
            drawn=covered.drawn,
            drawn_headline=drawn_headline(record, covered.drawn),
            outages=covered.outages,
            virtual=covered.virtual,
            outage_rule=RULE,
            headline=headline(matrix.rows),
            numbers=_numbers(matrix),
            surprises=_surprises(matrix),
            nodes=sorted({node for row in matrix.rows for node in row.targets}),
            took=(record.ended - record.started).total_seconds() if record.ended else None,
            accent=_ACCENTS.get(covered.result.exit_code, "unknown"),
            rendered_at=rendered_at,
        )
    )


def headline(rows: Sequence[FaultRow]) -> str:
    """Return the answer in a sentence: how many of the faults somebody would have noticed."""
    by = {noticed: [row for row in rows if row.noticed is noticed] for noticed in FaultNoticed}
    asked = len(rows) - len(by[FaultNoticed.QUIET]) - len(by[FaultNoticed.LOUD])
    if not rows:
        return "No game-day was judged."
    yes = len(by[FaultNoticed.YES])
    said = f"Of {asked} fault{'' if asked == 1 else 's'} that somebody should notice, {yes} {_were(yes)} noticed"
    said = said if asked else "None of these faults should be noticed by anybody"
    rest = [f"{len(by[FaultNoticed.PARTLY])} by only some of the expected signals"] if by[FaultNoticed.PARTLY] else []
    rest += [f"{len(by[FaultNoticed.NO])} by none"] if by[FaultNoticed.NO] else []
    rest += [f"of {len(by[FaultNoticed.UNKNOWN])} it is not known"] if by[FaultNoticed.UNKNOWN] else []
    rest += [f"of {len(by[FaultNoticed.NOT_ASKED])} it was not asked"] if by[FaultNoticed.NOT_ASKED] else []
    quiet = f" {len(by[FaultNoticed.QUIET])} that should stay quiet did." if by[FaultNoticed.QUIET] else ""
    loud = f" {len(by[FaultNoticed.LOUD])} that should stay quiet did not." if by[FaultNoticed.LOUD] else ""
    return "; ".join([said, *rest]) + "." + quiet + loud


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _numbers(matrix: CoverageMatrix) -> list[_Number]:
    first = sorted(row.first.seconds for row in matrix.rows if row.first and row.first.seconds is not None)
    middle = f"{seconds_text(first[len(first) // 2])}" if first else ""
    found = [_Number("First signal", middle, f"median of {len(first)} faults")]
    for signal in (Signal.ALERT, Signal.TAINT):
        median = matrix.median(signal)
        found.append(
            _Number(f"To {signal}", seconds_text(median) if median is not None else "", "median, where expected")
        )
    for state in (CellState.MISSED, CellState.UNKNOWN):
        found.append(_Number(str(state).capitalize(), str(matrix.count(state)), "expected signals"))
    return found


def _surprises(matrix: CoverageMatrix) -> list[tuple[FaultRow, CoverageCell]]:
    return [(row, cell) for row in matrix.rows for cell in row.cells if cell.state is CellState.UNEXPECTED]
