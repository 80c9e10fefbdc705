"""A cell of the league: what one detector did about one fault."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from pydantic import Field, TypeAdapter, ValidationError

from gameday.checks.facts import seconds_text
from gameday.checks.guests import why_guest_was_blind
from gameday.checks.outcome import RunOutcome, cleanliness
from gameday.checks.verdict import Status, Verdict
from gameday.coverage.cells import CellState, CoverageCell
from gameday.coverage.detections import OF_THE_DETECTOR
from gameday.coverage.matrix import FaultRow
from gameday.coverage.run_row import judged_run
from gameday.detectors.facts import rule_for
from gameday.detectors.load import load_detector
from gameday.detectors.models import Rule
from gameday.detectors.signals import Signal
from gameday.errors import DocumentError
from gameday.faults.registry import parse_parameters
from gameday.history.events import DetectorConsulted, GuestNamed
from gameday.history.journal import read_history
from gameday.league.record import LeagueFault
from gameday.plain_file import read_plain
from gameday.values.models import FrozenModel
from gameday.values.results import Cleanliness, Step

_VERDICTS: TypeAdapter[tuple[Verdict, ...]] = TypeAdapter(tuple[Verdict, ...])
_OUR_PROFILE = "gameday"
_KEPT_TO_ITS_NODES = "guest-kept-to-its-nodes"
# Conditions that the kubelet keeps, whatever a detector does.
_OF_THE_KUBELET = ("Ready=", "MemoryPressure=", "DiskPressure=", "PIDPressure=", "NetworkUnavailable=")


class LeagueState(StrEnum):
    """The answer of a detector to a fault."""

    NOTICED = "noticed"
    MISSED = "missed"
    WRONG = "wrongly acted"
    CANNOT_SEE = "cannot see"
    NOT_EXPECTED = "not expected"
    UNKNOWN = "unknown"
    NOT_PLAYED = "not played"


class CameSignal(FrozenModel):
    """A signal that the detector gave."""

    signal: Signal
    seconds: float
    what: str

    @property
    def text(self) -> str:
        return f"{self.signal} {seconds_text(self.seconds)}"


class LeagueCell(FrozenModel):
    """A detector's answer to a fault, with the signals that came, the first one first."""

    plan: str
    detector: str
    state: LeagueState
    signals: tuple[CameSignal, ...] = ()
    why: str = ""
    left: str = Field(default="", description="what was left on the node of a run that ended dirty; else empty")
    run: str = Field(default="", description="the run's folder, from the league's; empty where there is none")

    @property
    def seconds(self) -> float | None:
        """The time from the fault going in to the first signal; None where none came."""
        return self.signals[0].seconds if self.signals else None

    @property
    def text(self) -> str:
        """The cell in as few words as it bears."""
        seen = self.state in (LeagueState.NOTICED, LeagueState.WRONG)
        return f"{seconds_text(self.seconds)}" if seen and self.seconds is not None else str(self.state)

    @property
    def reason(self) -> str:
        """Everything that is to be said of the cell."""
        came = "; ".join(f"{one.text}, {one.what}" for one in self.signals)
        return "; ".join(filter(None, (came, self.why, self.left)))


def cell_of_run(fault: LeagueFault, detector: str, league: Path, run: Path) -> LeagueCell:
    """Return what a run says of its detector, out of the row and the verdicts that it left."""
    judged = judged_run(run)
    rows = judged.row.rows if judged else ()
    where = str(run.relative_to(league))
    if not rows:
        why = "the run's plan or history cannot be read"
        return LeagueCell(plan=fault.plan, detector=detector, state=LeagueState.UNKNOWN, why=why, run=where)
    row = rows[0]
    came = _came(row)
    state, why = _judge(fault, row, came, run)
    return LeagueCell(
        plan=fault.plan, detector=detector, state=state, signals=came, why=why, left=_left(row, run), run=where
    )


def _left(row: FaultRow, run: Path) -> str:
    if row.cleanliness is not Cleanliness.DIRTY:
        return ""
    _, why = cleanliness(read_history(run / "history.jsonl"))
    return f"the node was left dirty: {why}"


def _judge(fault: LeagueFault, row: FaultRow, came: Sequence[CameSignal], run: Path) -> tuple[LeagueState, str]:
    quarantined = next((one.what for one in came if one.signal is Signal.TAINT), "")
    if elsewhere := _wrote_elsewhere(run):
        return LeagueState.WRONG, f"wrote to nodes without a fault: {elsewhere}"
    if fault.stays_in_service and quarantined:
        return LeagueState.WRONG, f"took the node out of service for a fault that must not: {quarantined}"
    if came:
        return LeagueState.NOTICED, ""
    return _judge_silence(fault, row, run)


def _judge_silence(fault: LeagueFault, row: FaultRow, run: Path) -> tuple[LeagueState, str]:
    """Return what it means that none of the detector's own signals came."""
    cells = [row.cell(signal) for signal in OF_THE_DETECTOR]
    unknown, missed = _first(cells, CellState.UNKNOWN), _first(cells, CellState.MISSED)
    unknown = unknown or _why_blind(row, run)
    if row.outcome in (RunOutcome.REFUSED, RunOutcome.ABORTED) or unknown:
        return LeagueState.UNKNOWN, unknown or row.why
    if missed:
        return LeagueState.MISSED, missed
    sees, why = _profile_says(run)
    if sees is False:
        return LeagueState.CANNOT_SEE, why or "its profile says that it cannot see this fault"
    nothing = "names nothing that it shows for this fault" if sees else "says nothing of this fault, and nothing came"
    quiet = "it stayed quiet, as it should" if fault.stays_in_service else f"its profile {nothing}"
    return LeagueState.NOT_EXPECTED, quiet


def _came(row: FaultRow) -> tuple[CameSignal, ...]:
    """Return the detector's own signals in the order in which they came, also those that its profile does not name."""
    found = [
        CameSignal(signal=cell.signal, seconds=cell.seconds, what=cell.what)
        for cell in (row.cell(signal) for signal in OF_THE_DETECTOR)
        if cell.seconds is not None and _is_its_own(cell)
    ]
    return tuple(sorted(found, key=lambda one: one.seconds))


def _is_its_own(cell: CoverageCell) -> bool:
    """Return whether the detector gave the signal: of those that nobody expected, others may have given some."""
    if cell.state is CellState.SEEN:
        return True
    others = cell.signal is Signal.ALLOCATABLE or (
        cell.signal is Signal.CONDITION and cell.what.startswith(_OF_THE_KUBELET)
    )
    return cell.state is CellState.UNEXPECTED and not others


def _first(cells: Sequence[CoverageCell], state: CellState) -> str:
    """Return why the first cell has this state; empty where none has."""
    return next((cell.why or str(state) for cell in cells if cell.state is state), "")


def _wrote_elsewhere(run: Path) -> str:
    try:
        verdicts = _VERDICTS.validate_json(read_plain(run / "verdicts.json"))
    except (OSError, ValidationError):
        return ""
    broken = (one.why for one in verdicts if one.check == _KEPT_TO_ITS_NODES and one.status is Status.BROKEN)
    return next(broken, "")


def _why_blind(row: FaultRow, run: Path) -> str:
    """Return why the guest's silence about a target proves nothing, also where nothing was expected of it."""
    history = read_history(run / "history.jsonl")
    found = (why_guest_was_blind(history, node, Step.VERIFY_TAINT) for node in row.targets)
    return next(filter(None, found), "")


def _profile_says(run: Path) -> tuple[bool | None, str]:
    """Return whether the profile that watched sees the fault, and why not; None: it says nothing of it."""
    history = read_history(run / "history.jsonl")
    if consulted := history.last(DetectorConsulted):
        return consulted.sees, consulted.why
    rule = None if history.last(GuestNamed) else _rule_of_ours(run)
    return (not rule.cannot_see, rule.cannot_see) if rule else (None, "")


def _rule_of_ours(run: Path) -> Rule | None:
    """Return the word of our own controller's profile on the run's fault; None where it says nothing of it."""
    try:
        fault = parse_parameters(json.loads(read_plain(run / "plan.json"))["fault"])
        return rule_for(load_detector(_OUR_PROFILE), fault)
    except (OSError, ValueError, KeyError, DocumentError):
        return None
