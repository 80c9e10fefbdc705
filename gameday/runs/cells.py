"""A cell of the matrix: a signal of a fault as a latency, or as a word with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from pydantic import Field

from gameday.checks.facts import seconds_text
from gameday.detectors.signals import Signal
from gameday.runs.detections import FaultWindow, first_detection, not_asked
from gameday.runs.pages import PageModel
from gameday.values.dated import CLOCK_TOLERANCE_S


class CellState(StrEnum):
    """The states from good to bad, so that the worst of several targets can be taken."""

    NOT_EXPECTED = "not expected"
    NOT_ASKED = "not asked"
    UNEXPECTED = "seen, not expected"
    SEEN = "seen"
    UNKNOWN = "unknown"
    MISSED = "missed"
    WRONG = "wrongly acted"
    """A detector took a node out of service that had to stay in, or wrote to one without a fault."""
    NOT_PLAYED = "not played"


_BADNESS = list(CellState)


class CoverageCell(PageModel):
    """A signal of a fault; with several targets, that of the worst one."""

    signal: Signal
    state: CellState
    seconds: float | None = Field(default=None, allow_inf_nan=False, description="from the fault going in")
    what: str = Field(default="", description="what was seen: an alert's name, a taint")
    why: str = Field(default="", description="why it is unknown, missed or not asked")
    node: str | None = None

    @property
    def text(self) -> str:
        """The cell's text, as short as possible."""
        return str(self.state) if self.seconds is None else seconds_text(self.seconds)


def cell_of(signal: Signal, expected: bool, windows: Sequence[FaultWindow], not_reached: str) -> CoverageCell:
    """Return a signal's cell; `not_reached` is the reason if no fault went in, so that there is no window."""
    if not windows:
        state = CellState.UNKNOWN if expected else CellState.NOT_EXPECTED
        return CoverageCell(signal=signal, state=state, why=not_reached if expected else "")
    cells = [_of_one(signal, expected, window) for window in windows]
    return max(cells, key=lambda cell: (_BADNESS.index(cell.state), cell.seconds or 0.0))


def _of_one(signal: Signal, expected: bool, window: FaultWindow) -> CoverageCell:
    seen = first_detection(signal, window)
    if seen.at is not None:
        seconds = (seen.at - window.fault.written_at).total_seconds()
        if seconds < -CLOCK_TOLERANCE_S:
            why = f"clocks disagree: {seen.what} was seen {seconds_text(-seconds)} before the fault"
            return CoverageCell(signal=signal, state=CellState.UNKNOWN, what=seen.what, why=why, node=window.node)
        state = CellState.SEEN if expected else CellState.UNEXPECTED
        return CoverageCell(signal=signal, state=state, seconds=max(0.0, seconds), what=seen.what, node=window.node)
    if not expected:
        return CoverageCell(signal=signal, state=CellState.NOT_EXPECTED, node=window.node)
    if why := not_asked(signal, window):
        return CoverageCell(signal=signal, state=CellState.NOT_ASKED, why=why, node=window.node)
    if seen.why:
        return CoverageCell(signal=signal, state=CellState.UNKNOWN, why=seen.why, node=window.node)
    waited = seconds_text((window.end - window.fault.written_at).total_seconds())
    why = f"not seen on {window.node} in the {waited} the fault was in"
    return CoverageCell(signal=signal, state=CellState.MISSED, why=why, node=window.node)
