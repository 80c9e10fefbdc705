"""The gaps of the matrix, with what a person can do about them."""

from __future__ import annotations

from collections.abc import Iterable

from gameday.detectors.signals import Signal
from gameday.runs.cells import CellState, CoverageCell
from gameday.runs.pages import PageModel

_MISSED: dict[Signal, str] = {
    Signal.LOG: "Look at the path from the node's kernel log to the log store: is the shipper running there, and does "
    "the store keep the label of the node? Detectors that read logs were blind for this fault.",
    Signal.METRIC: "Have dcgm-exporter export the field that shows this fault (deploy/alerts/dcgm-counters.csv) and "
    "Prometheus scrape it; without it no rule can see the fault.",
    Signal.ALERT: "Load the rule that deploy/alerts has for this fault, look whether its expression holds while the "
    "fault is in and whether its `for:` is longer than the plan allows.",
    Signal.CONDITION: "Look whether the detector runs on the node and is configured for this fault; the profile the "
    "plan names says it should set the condition.",
    Signal.TAINT: "New work still lands on the broken node: let the detector quarantine for this fault, or take the "
    "taint out of the plan if that is not wanted.",
    Signal.EVENT: "Look whether the detector may write Events (its RBAC), and whether it does for this fault.",
    Signal.ALLOCATABLE: "The scheduler still counts the broken GPU: look at the device plugin's health checks on the "
    "node.",
    Signal.CANARY: "The canary did not slow down under a fault that should slow it: look whether it used the GPU and "
    "the path that was broken.",
    Signal.SAID: "Look into the guest's output in the run's folder, and whether `says` in the guest's file matches it.",
}
_UNKNOWN: dict[Signal, str] = {
    Signal.LOG: "Mend what kept the log store from being read, and run the plan again.",
    Signal.METRIC: "Name the alert that should fire in the plan, so that its rule's expression is dated; let the "
    "baseline window hold three samples (baseline.window against the scrape interval); look whether Prometheus scrapes "
    "the node.",
    Signal.CANARY: "Give the plan a canary (expect.canary) and the node a free GPU for it.",
}
_UNKNOWN_ELSE = "Mend what stopped the run, and run the plan again: nothing is known of this signal until then."


class CoverageGap(PageModel):
    """Signals of one fault that should have come and did not, or are unknown; and what to do about it."""

    plan: str
    signals: tuple[Signal, ...]
    state: CellState
    why: str
    advice: str

    def __str__(self) -> str:
        return f"{self.plan}: {', '.join(self.signals)} {self.state}"


def gaps_of(plan: str, cells: Iterable[CoverageCell]) -> list[CoverageGap]:
    """Return the gaps: cells that are missed or unknown, with one gap for all cells with the same reason."""
    found: dict[tuple[CellState, str, str], list[Signal]] = {}
    for cell in cells:
        found.setdefault((cell.state, cell.why, _advice(cell)), []).append(cell.signal)
    return [
        CoverageGap(plan=plan, signals=tuple(signals), state=state, why=why, advice=advice)
        for (state, why, advice), signals in found.items()
    ]


def _advice(cell: CoverageCell) -> str:
    if cell.state is CellState.MISSED:
        return _MISSED[cell.signal]
    return _UNKNOWN_ELSE if cell.why.startswith("not reached") else _UNKNOWN.get(cell.signal, _UNKNOWN_ELSE)
