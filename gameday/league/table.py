"""The league's table out of its seasons' folders: fault × detector, and each detector's tally."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from pydantic import Field

from gameday.league.cells import LeagueCell, LeagueState, cell_of_run
from gameday.league.record import LeagueEntry, LeagueFault, LeagueRecord, finished_runs, left_out, not_begun, seasons_of
from gameday.values.models import FrozenModel


class DetectorTally(FrozenModel):
    """A detector's whole column in a few numbers."""

    name: str
    version: str
    played: int = Field(description="faults that it has a finished run of")
    to_notice: int = Field(description="those of them that ask for action")
    noticed: int = Field(description="faults that it gave a signal of, wrongly or not")
    noticed_to_notice: int = Field(description="those of them that ask for action")
    wrong: int = Field(description="faults for which it acted wrongly")
    unknown: int
    median_s: float | None = Field(description="median of the times to the first signal; None where none came")
    seasons: tuple[str, ...] = Field(description="its seasons' folders, from the league's")
    problem: str = ""


class LeagueRow(FrozenModel):
    """A fault with a cell for each detector, in the order of the entries."""

    fault: LeagueFault
    cells: tuple[LeagueCell, ...]


class LeagueTable(FrozenModel):
    """Every cell and every tally."""

    rows: tuple[LeagueRow, ...]
    tallies: tuple[DetectorTally, ...]

    @property
    def not_played(self) -> int:
        """The cells without a finished run."""
        return sum(cell.state is LeagueState.NOT_PLAYED for row in self.rows for cell in row.cells)


def league_table(record: LeagueRecord, folder: Path) -> LeagueTable:
    """Return the table of what has been played so far; a run that cannot be read is unknown, and no error."""
    columns = [_column(record, entry, folder) for entry in record.entries]
    rows = tuple(
        LeagueRow(fault=fault, cells=tuple(column[number] for column in columns))
        for number, fault in enumerate(record.faults)
    )
    tallies = (_tally(record, entry, column, folder) for entry, column in zip(record.entries, columns, strict=True))
    return LeagueTable(rows=rows, tallies=tuple(tallies))


def _column(record: LeagueRecord, entry: LeagueEntry, folder: Path) -> list[LeagueCell]:
    runs = finished_runs(folder, entry)
    out = not_begun(folder, entry) | {plan: one.why for plan, one in left_out(folder, entry).items()}
    cells = []
    for fault in record.faults:
        if run := runs.get(fault.plan):
            cells.append(cell_of_run(fault, entry.name, folder, run))
            continue
        why = out.get(fault.plan) or entry.problem or "not played yet"
        cells.append(LeagueCell(plan=fault.plan, detector=entry.name, state=LeagueState.NOT_PLAYED, why=why))
    return cells


def _tally(record: LeagueRecord, entry: LeagueEntry, cells: list[LeagueCell], folder: Path) -> DetectorTally:
    asked = {fault.plan for fault in record.faults if fault.asks_for_action}
    played = [cell for cell in cells if cell.state is not LeagueState.NOT_PLAYED]
    noticed = [cell for cell in played if cell.signals]
    times = [cell.seconds for cell in noticed if cell.seconds is not None]
    return DetectorTally(
        name=entry.name,
        version=entry.version,
        played=len(played),
        to_notice=sum(cell.plan in asked for cell in played),
        noticed=len(noticed),
        noticed_to_notice=sum(cell.plan in asked for cell in noticed),
        wrong=sum(cell.state is LeagueState.WRONG for cell in played),
        unknown=sum(cell.state is LeagueState.UNKNOWN for cell in played),
        median_s=median(times) if times else None,
        seasons=tuple(f"{entry.name}/{season.id}" for season in seasons_of(folder, entry)),
        problem=entry.problem,
    )
