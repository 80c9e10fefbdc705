"""The coverage matrix: a row per plan, a cell per signal: a latency, missed, not expected, not asked or unknown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import cache

from pydantic import AwareDatetime, Field

from gameday.checks.facts import stop_reason, targets
from gameday.checks.guests import why_guest_was_blind
from gameday.checks.outcome import RunOutcome
from gameday.checks.verdict import Status
from gameday.detectors.load import load_detector
from gameday.detectors.models import DetectorProfile
from gameday.detectors.signals import Signal, expected_signals, expects_a_word
from gameday.errors import DocumentError
from gameday.faults.registry import fault_for, parse_parameters
from gameday.history.events import FaultInjected, GuestNamed
from gameday.plan.models import Plan
from gameday.report.run_folder import RunFolder
from gameday.runs.cells import CellState, CoverageCell, cell_of
from gameday.runs.detections import expects_canary_to_feel_fault, left_standing, window_of
from gameday.runs.gaps import CoverageGap, gaps_of
from gameday.runs.pages import PageModel
from gameday.values.results import Cleanliness, Step

_REACHING_SOMEBODY = frozenset(Signal) - {Signal.LOG, Signal.METRIC, Signal.EVENT, Signal.SAID}
"""Signals that act or alert somebody. A log line, a metric, a Kubernetes Event and a guest's output reach only people
who look for them."""


_KEPT_AWAY = "guest-kept-to-its-nodes"


class FaultNoticed(StrEnum):
    """The result of those signals that reach somebody."""

    YES = "noticed"
    PARTLY = "partly noticed"
    NO = "not noticed"
    UNKNOWN = "unknown"
    NOT_ASKED = "not asked"
    QUIET = "quiet, as hoped"
    LOUD = "not quiet"


class FaultRow(PageModel):
    plan: str
    title: str
    fault: str
    layer: str
    run_id: str
    started: AwareDatetime | None
    targets: tuple[str, ...]
    outcome: RunOutcome
    cleanliness: Cleanliness
    why: str
    stands: str | None = Field(
        default=None,
        description="the detector's taints and conditions that still stood at the end, after a repair; empty if none "
        "did; None if nobody repaired",
    )
    elsewhere: str = Field(default="", description="what the detector wrote to nodes without a fault; empty if nothing")
    blind: str = Field(default="", description="why a guest's silence proves nothing; else empty")
    cells: tuple[CoverageCell, ...]

    def cell(self, signal: Signal) -> CoverageCell:
        """Return the signal's cell; a signal that the run could not give is not expected."""
        absent = CoverageCell(signal=signal, state=CellState.NOT_EXPECTED)
        return next((cell for cell in self.cells if cell.signal is signal), absent)

    @property
    def first(self) -> CoverageCell | None:
        """The expected signal that came first, which shows how soon anybody could have known."""
        seen = [cell for cell in self.cells if cell.state is CellState.SEEN and cell.seconds is not None]
        return min(seen, key=lambda cell: cell.seconds or 0.0, default=None)

    @property
    def noticed(self) -> FaultNoticed:
        """The part of the expected signals, of those that reach somebody, that was seen: all, some or none."""
        states = [cell.state for cell in self.cells if cell.signal in _REACHING_SOMEBODY]
        seen, missed = CellState.SEEN in states, CellState.MISSED in states
        if seen:
            return FaultNoticed.PARTLY if missed else FaultNoticed.YES
        if missed or CellState.UNKNOWN in states:
            return FaultNoticed.NO if missed else FaultNoticed.UNKNOWN
        if CellState.NOT_ASKED in states:
            return FaultNoticed.NOT_ASKED
        return FaultNoticed.LOUD if CellState.UNEXPECTED in states else FaultNoticed.QUIET

    @property
    def gaps(self) -> tuple[CoverageCell, ...]:
        return tuple(cell for cell in self.cells if cell.state in (CellState.MISSED, CellState.UNKNOWN))


class CoverageMatrix(PageModel):
    signals: tuple[Signal, ...] = tuple(Signal)
    rows: tuple[FaultRow, ...]
    gaps: tuple[CoverageGap, ...]

    def count(self, state: CellState) -> int:
        return sum(cell.state is state for row in self.rows for cell in row.cells)

    def median(self, signal: Signal) -> float | None:
        """Return the median seconds of the rows in which the signal was expected and seen."""
        times = sorted(
            cell.seconds
            for row in self.rows
            if (cell := row.cell(signal)).state is CellState.SEEN and cell.seconds is not None
        )
        middle = len(times) // 2
        if not times:
            return None
        return times[middle] if len(times) % 2 else (times[middle - 1] + times[middle]) / 2


def matrix_of(run: RunFolder) -> CoverageMatrix:
    """Return a matrix of the run's row with its gaps; an empty one if its plan cannot be read."""
    rows = [_row(run, run.plan)] if run.plan else []
    gaps = tuple(gap for row in rows for gap in gaps_of(row.plan, row.gaps))
    return CoverageMatrix(signals=_signals(rows), rows=tuple(rows), gaps=gaps)


def _signals(rows: Sequence[FaultRow]) -> tuple[Signal, ...]:
    """Return the signals that any row has a cell for; only a guest's runs have one for its own word."""
    found = {cell.signal for row in rows for cell in row.cells}
    return tuple(signal for signal in Signal if signal in found or signal is not Signal.SAID)


def joined(single: Iterable[CoverageMatrix]) -> CoverageMatrix:
    """Return matrices of different plans as one, in the same order."""
    parts = sorted((one for one in single if one.rows), key=lambda one: (one.rows[0].layer, one.rows[0].plan))
    rows = tuple(row for one in parts for row in one.rows)
    return CoverageMatrix(signals=_signals(rows), rows=rows, gaps=tuple(gap for one in parts for gap in one.gaps))


def _row(run: RunFolder, plan: Plan) -> FaultRow:
    injected = run.history.first(FaultInjected)
    known, nodes = _with_parameters(plan), tuple(target.node for target in targets(run.history))
    return FaultRow(
        plan=plan.name,
        title=plan.title,
        fault=plan.fault.type,
        layer=str(fault_for(known.fault).layer) if known else injected.layer if injected else "",
        run_id=run.started.run_id if run.started else "",
        started=run.history.records[0].at if run.history.records else None,
        targets=nodes,
        outcome=run.result.outcome,
        cleanliness=run.result.cleanliness,
        why=run.result.why,
        stands=left_standing(run),
        elsewhere=next(
            (one.why for one in run.verdicts if one.check == _KEPT_AWAY and one.status is Status.BROKEN), ""
        ),
        blind=next(filter(None, (why_guest_was_blind(run.history, node, Step.VERIFY_TAINT) for node in nodes)), ""),
        cells=_cells(run, known),
    )


def _cells(run: RunFolder, plan: Plan | None) -> tuple[CoverageCell, ...]:
    guest = run.history.last(GuestNamed)
    signals = [signal for signal in Signal if signal is not Signal.SAID or (guest and guest.says)]
    detector = _detector(plan.detector) if plan else None
    has_no_profile = guest is not None and plan is not None and plan.detector == guest.name
    if plan is None or (detector is None and not has_no_profile):
        why = "this version does not know the fault" if plan is None else f"no detector profile {plan.detector}"
        return tuple(CoverageCell(signal=signal, state=CellState.UNKNOWN, why=why) for signal in signals)
    expected = dict(expected_signals(plan, detector)) | {Signal.SAID: expects_a_word(plan, detector)}
    if plan.expect.measurements:
        expected[Signal.CANARY] = expects_canary_to_feel_fault(plan)
    # If a fault is put in again, only its first time counts.
    windows = {fault.target.node: window_of(run, fault) for fault in run.history.of(FaultInjected)[::-1]}
    not_reached = f"not reached: {stop_reason(run.history)}"
    return tuple(cell_of(signal, expected[signal], list(windows.values()), not_reached) for signal in signals)


def _with_parameters(plan: Plan) -> Plan | None:
    """Return a stored plan with its fault's own model; None for an unknown fault."""
    try:
        return plan.model_copy(update={"fault": parse_parameters(plan.fault.model_dump(mode="json"))})
    except ValueError:
        return None


@cache
def _detector(name: str) -> DetectorProfile | None:
    try:
        return load_detector(name)
    except DocumentError:
        return None
