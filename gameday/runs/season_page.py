"""A season's page: the matrix of its runs, the answer in a sentence, the gaps in words; and the same as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from gameday.checks.facts import seconds_text
from gameday.checks.outcome import RunOutcome
from gameday.detectors.signals import Signal
from gameday.errors import RefusedError
from gameday.plain_file import read_plain
from gameday.report.markdown import markdown
from gameday.report.outage import RULE, OutageTotal, outage_totals
from gameday.report.summary import virtual_words
from gameday.runs.cells import CellState, CoverageCell
from gameday.runs.comparison_page import result_of_member
from gameday.runs.drawn import DrawnGameDay, drawn_game_days, drawn_headline
from gameday.runs.matrix import CoverageMatrix, FaultNoticed, FaultRow, joined
from gameday.runs.pages import PageModel, RenderedPage, write_page
from gameday.runs.run_row import judged_run
from gameday.runs.season_record import LeftOut, SeasonRecord, SeasonResult, fold_season


class Coverage(PageModel):
    """The content of coverage.json."""

    record: SeasonRecord
    result: SeasonResult
    matrix: CoverageMatrix
    left_out: tuple[LeftOut, ...]
    outages: tuple[OutageTotal, ...] = ()
    virtual: str = ""
    """The note that its game-days' GPUs are virtual; empty if they are not."""
    drawn: tuple[DrawnGameDay, ...] = ()
    """A random season's game-days, with those that were not played."""

    @property
    def headline(self) -> str:
        """The answer in a sentence."""
        return headline(self.matrix.rows)

    @property
    def drawn_headline(self) -> str:
        """The draw of a random season in a sentence; empty for any other."""
        return drawn_headline(self.record, self.drawn)

    @property
    def markdown(self) -> str:
        """The answer, the matrix and its gaps in words."""
        return markdown("runs", "season.md", covered=self)

    @property
    def nodes(self) -> list[str]:
        """The nodes that its runs broke."""
        return sorted({node for row in self.matrix.rows for node in row.targets})

    @property
    def numbers(self) -> list[tuple[str, str, str]]:
        """Its figures: a name, the value (empty if nothing was measured), and a note."""
        first = sorted(row.first.seconds for row in self.matrix.rows if row.first and row.first.seconds is not None)
        middle = seconds_text(first[len(first) // 2]) if first else ""
        found = [("First signal", middle, f"median of {len(first)} faults")]
        for signal in (Signal.ALERT, Signal.TAINT):
            median = self.matrix.median(signal)
            found.append((f"To {signal}", "" if median is None else seconds_text(median), "median, where expected"))
        for state in (CellState.MISSED, CellState.UNKNOWN):
            found.append((str(state).capitalize(), str(self.matrix.count(state)), "expected signals"))
        return found

    @property
    def surprises(self) -> list[tuple[FaultRow, CoverageCell]]:
        """The signals that came although they were not expected, with their rows."""
        return [(row, cell) for row in self.matrix.rows for cell in row.cells if cell.state is CellState.UNEXPECTED]


def render_season(folder: Path, rendered_at: datetime) -> RenderedPage[Coverage]:
    """Write coverage.html and coverage.json into the season's folder, from season.json and its runs' folders beside it.

    Raises OSError if it cannot be read, ValueError if season.json holds something else.
    """
    record = SeasonRecord.load(folder)
    folders = {place.run_id: place.reports(folder.parent) / place.run_id for place in record.places}
    runs = {place.run_id: run for place in record.places if (run := judged_run(folders[place.run_id]))}
    of_arms = {
        place.run_id: result_of_member(folders[place.run_id].parent, place.run_id)
        for place in record.places
        if place.arm and place.run_id in runs
    }
    missing = [
        LeftOut(plan=place.plan, title=place.plan, why=record.why_not_begun(place))
        for place in record.places
        if place.run_id not in runs and place.drawn is None
    ]
    summaries = [run.summary for run in runs.values()]
    covered = Coverage(
        record=record,
        result=fold_season([of_arms.get(run_id, run.result) for run_id, run in runs.items()], record.stopped),
        matrix=joined(run.row for run in runs.values()),
        left_out=(*record.left_out, *missing),
        outages=outage_totals((one.rehearsal, one.out_of_work) if one else (False, None) for one in summaries),
        virtual=virtual_words([one.rehearsal for one in summaries if one]),
        drawn=drawn_game_days(record, runs),
    )
    return _write(covered, folder, rendered_at)


def read_coverage(folder: Path) -> Coverage:
    """Return what a season's page says; raises OSError, and ValueError if coverage.json holds something else."""
    return Coverage.model_validate_json(read_plain(folder / "coverage.json"))


def plays_in(folders: Sequence[Path]) -> Counter[str]:
    """Return how often seasons played each plan to its end.

    Raises:
        RefusedError: A folder has no page of a season.
    """
    try:
        rows = [row for folder in folders for row in read_coverage(folder).matrix.rows]
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "coverage.json is damaged"
        again = "give a season's folder; `gameday coverage --again FOLDER` draws its page"
        raise RefusedError(f"an earlier season cannot be read: {why}", again) from None
    return Counter(row.plan for row in rows if row.outcome not in (RunOutcome.REFUSED, RunOutcome.ABORTED))


def redraw_season(folder: Path, rendered_at: datetime) -> RenderedPage[Coverage]:
    """Write the page again from coverage.json, with links to what is still there; raises as `read_coverage`."""
    return _write(read_coverage(folder), folder, rendered_at)


def _write(covered: Coverage, folder: Path, rendered_at: datetime) -> RenderedPage[Coverage]:
    """Write the season's page; of runs and comparisons it links those that are in the folder beside its own."""
    reports, places = folder.parent, covered.record.places
    runs = {place.run_id: place.reports(reports) / place.run_id for place in places}
    compared = {place.arm.comparison for place in places if place.arm}
    return write_page(
        folder / "coverage",
        "season.html",
        covered,
        rendered_at,
        links={run: str(path.relative_to(reports)) if path.is_dir() else "" for run, path in runs.items()},
        comparisons=sorted(id for id in compared if (reports / id).is_dir()),
        outage_rule=RULE,
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
