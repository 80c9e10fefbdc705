"""A cordon that must come; the check node-as-before judges whether it ends."""

from __future__ import annotations

from math import inf
from typing import ClassVar

from gameday.documents.fields import Bound
from gameday.expect.base import Expectation, Sighting, Signal
from gameday.history.events import CordonSeen, StepStarted
from gameday.history.journal import History
from gameday.values.nodes import NodeRole
from gameday.values.results import Step


class ExpectedCordon(Signal):
    """A cordon: the target must become unschedulable, as with `kubectl cordon`."""

    event: ClassVar = CordonSeen
    check: ClassVar = "cordoned"
    quarantines: ClassVar = True

    within: Bound
    """Longest time from the fault going in until the node is unschedulable."""

    def __str__(self) -> str:
        return "cordoned"

    def comes(self, node: str) -> str:
        return f"{node} is made unschedulable"

    def awaited(self, node: str) -> str:
        return f"the cordon of {node}"

    def amiss(self, seen: CordonSeen) -> str | None:
        return "" if seen.cordoned else None

    def seen(self, history: History, node: str | None) -> list[Sighting]:
        """Return the cordons between the fault and the recovery, which cordons the node itself."""
        recovers = [record.seq for record, begun in history.with_times(StepStarted) if begun.step is Step.RECOVER]
        return [one for one in super().seen(history, node) if one.record.seq < min(recovers, default=inf)]


class Cordoned(Expectation):
    order: ClassVar = 51
    needs: ClassVar = NodeRole.GPU

    cordoned: ExpectedCordon | None = None
    """The target must become unschedulable: a quarantine without a taint of the detector's own."""
