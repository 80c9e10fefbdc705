"""Seasons of several detectors as one matrix: a row for each fault, a column for each detector."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median

from pydantic import Field

from gameday.checks.outcome import RunOutcome
from gameday.detectors.signals import Signal
from gameday.runs.cells import CellState, CoverageCell
from gameday.runs.detections import OF_THE_DETECTOR
from gameday.runs.matrix import FaultRow
from gameday.runs.pages import PageModel, RenderedPage, write_page
from gameday.runs.season_page import Coverage, read_coverage
from gameday.values.results import Cleanliness

_ASKS_FOR_ACTION = "quarantine"
_STAYS_IN_SERVICE = ("workload", "event", "ignore")
"""Decisions about a kernel-log line (docs/detectors.md) that leave a node in service."""
# Conditions of the kubelet, which detectors do not set.
_OF_THE_KUBELET = ("Ready=", "MemoryPressure=", "DiskPressure=", "PIDPressure=", "NetworkUnavailable=")
_NOT_PLAYED_OUT = (RunOutcome.REFUSED, RunOutcome.ABORTED)


class DetectorAnswer(PageModel):
    """A detector's answer to a fault, with the signals that it gave itself, in the order of time."""

    state: CellState
    signals: tuple[CoverageCell, ...] = ()
    why: str = ""
    left: str = Field(default="", description="why the node of the run was left dirty; empty if it was not")
    run: str = Field(default="", description="the run's folder, from the page's; empty if there is none")

    @property
    def seconds(self) -> float | None:
        """The time from the fault going in to the first signal; None if none came."""
        return self.signals[0].seconds if self.signals else None


class DetectorColumn(PageModel):
    """A detector, with the sum of its answers to the faults."""

    name: str
    seasons: tuple[str, ...] = Field(description="its seasons' folders, from the page's")
    played: int
    noticed: int = Field(description="faults that it gave a signal of, wrongly or not")
    asked: int = Field(description="played faults with a line that asks to take the node out of service")
    noticed_asked: int
    wrong: int
    median_s: float | None = Field(description="median of the times to the first signal; None if none came")


class DetectorRow(PageModel):
    """A fault, with an answer for each column."""

    plan: str
    title: str
    layer: str
    answers: tuple[DetectorAnswer, ...]


class DetectorMatrix(PageModel):
    """The content of detectors.json."""

    columns: tuple[DetectorColumn, ...]
    rows: tuple[DetectorRow, ...]


def compare_detectors(
    seasons: Sequence[tuple[str, Path]], reports: Path, rendered_at: datetime
) -> RenderedPage[DetectorMatrix]:
    """Write detectors.html and detectors.json into a folder, from the coverage.json of seasons.

    Args:
        seasons: The detector's name and the season's folder. Seasons of one name are one column: of each plan the
            newest run that was played to its end counts.
        reports: The folder to write into.
        rendered_at: Now.

    Raises:
        OSError: A file cannot be read or written.
        ValueError: A coverage.json holds something else.
    """
    found: dict[str, dict[Path, Coverage]] = {}
    for name, folder in seasons:
        covered = read_coverage(folder)
        found.setdefault(name or str(covered.record.guest or "ours"), {})[folder] = covered
    return write_page(reports / "detectors", "detectors.html", _matrix(found, reports.resolve()), rendered_at)


def _matrix(found: Mapping[str, Mapping[Path, Coverage]], reports: Path) -> DetectorMatrix:
    faults: dict[str, FaultRow] = {}
    columns, answers = [], []
    for name, seasons in found.items():
        rows = _newest(seasons, reports)
        faults |= {plan: row for plan, (row, _) in rows.items()}
        mine = {plan: _answer(row, run) for plan, (row, run) in rows.items()}
        asked = {plan for plan, (row, _) in rows.items() if row.decision == _ASKS_FOR_ACTION}
        columns.append(_column(name, [os.path.relpath(one.resolve(), reports) for one in seasons], mine, asked))
        out = {one.plan: one.why for covered in seasons.values() for one in covered.left_out}
        absent = {plan: DetectorAnswer(state=CellState.NOT_PLAYED, why=why) for plan, why in out.items()}
        answers.append({**absent, **mine})
    never = DetectorAnswer(state=CellState.NOT_PLAYED, why="no season named here has this plan")
    by_fault = (
        DetectorRow(
            plan=row.plan, title=row.title, layer=row.layer, answers=tuple(one.get(row.plan, never) for one in answers)
        )
        for row in sorted(faults.values(), key=lambda row: (row.layer, row.plan))
    )
    return DetectorMatrix(columns=tuple(columns), rows=tuple(by_fault))


def _newest(seasons: Mapping[Path, Coverage], reports: Path) -> dict[str, tuple[FaultRow, str]]:
    """Return each plan's newest row with its run's folder; a run that was stopped or refused gives way to any other."""
    found: dict[str, tuple[FaultRow, str]] = {}
    for folder, covered in sorted(seasons.items(), key=lambda one: one[1].record.started):
        places = {
            place.run_id: place.reports(folder.resolve().parent) / place.run_id for place in covered.record.places
        }
        for row in covered.matrix.rows:
            if row.plan not in found or row.outcome not in _NOT_PLAYED_OUT:
                run = places.get(row.run_id)
                found[row.plan] = row, os.path.relpath(run, reports) if run and run.is_dir() else ""
    return found


def _answer(row: FaultRow, run: str) -> DetectorAnswer:
    cells = [row.cell(signal) for signal in OF_THE_DETECTOR]
    own = sorted(filter(_is_its_own, cells), key=lambda cell: cell.seconds or 0.0)
    quarantined = next((cell.what for cell in own if cell.signal is Signal.TAINT), "")
    unknown, missed = ([cell for cell in cells if cell.state is one] for one in (CellState.UNKNOWN, CellState.MISSED))
    if row.elsewhere:
        state, why = CellState.WRONG, f"it wrote to nodes without a fault: {row.elsewhere}"
    elif quarantined and row.decision in _STAYS_IN_SERVICE:
        state, why = CellState.WRONG, f"it took a node out of service that had to stay: {quarantined}"
    elif own:
        state, why = CellState.SEEN, ""
    elif unknown or row.blind or row.outcome in _NOT_PLAYED_OUT:
        state, why = CellState.UNKNOWN, unknown[0].why if unknown else row.blind or row.why
    elif missed:
        state, why = CellState.MISSED, missed[0].why
    else:
        state, why = CellState.NOT_EXPECTED, "nothing was to come, and nothing came"
    left = row.why if row.cleanliness is Cleanliness.DIRTY else ""
    return DetectorAnswer(state=state, signals=tuple(own), why=why, left=left, run=run)


def _is_its_own(cell: CoverageCell) -> bool:
    """Return True if the detector gave the signal: of those that nobody expected, others may have given some."""
    others = cell.signal is Signal.ALLOCATABLE or (
        cell.signal is Signal.CONDITION and cell.what.startswith(_OF_THE_KUBELET)
    )
    return cell.state is CellState.SEEN or (cell.state is CellState.UNEXPECTED and not others)


def _column(name: str, seasons: Sequence[str], mine: Mapping[str, DetectorAnswer], asked: set[str]) -> DetectorColumn:
    times = {plan: one.seconds for plan, one in mine.items() if one.seconds is not None}
    return DetectorColumn(
        name=name,
        seasons=tuple(seasons),
        played=len(mine),
        noticed=len(times),
        asked=len(asked),
        noticed_asked=len(asked & times.keys()),
        wrong=sum(one.state is CellState.WRONG for one in mine.values()),
        median_s=median(times.values()) if times else None,
    )
