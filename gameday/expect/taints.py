"""Taints that must appear on the target, with exactly their value and effect."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from gameday.documents.fields import Bound, LabelKey, LabelValue
from gameday.expect.base import Expectation, Sighting, Signal
from gameday.history.events import TaintSeen
from gameday.history.journal import History
from gameday.values.nodes import NodeRole, Taint


class TaintEffect(StrEnum):
    """The effect of a taint in Kubernetes."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class ExpectedTaint(Signal):
    """A taint that must appear on the target."""

    event: ClassVar = TaintSeen
    check: ClassVar = "taint-set"
    quarantines: ClassVar = True

    key: LabelKey
    """Key of the taint, such as `trainy.konduktor.ai/faulty`."""
    value: LabelValue = ""
    """Value of the taint."""
    effect: TaintEffect = TaintEffect.NO_SCHEDULE
    """Effect of the taint."""
    within: Bound
    """Longest time from the fault going in until the taint is on the node."""

    def __str__(self) -> str:
        return f"{self.key}:{self.effect}"

    @property
    def taint(self) -> Taint:
        """The taint that the node must have."""
        return Taint(key=self.key, value=self.value, effect=str(self.effect))

    def comes(self, node: str) -> str:
        return f"Taint {self.taint} is put on {node}"

    def awaited(self, node: str) -> str:
        return f"taint {self.key}={self.value}:{self.effect} on {node}"

    def absent(self, node: str | None) -> str:
        return f"the taint on {node}"

    def amiss(self, seen: TaintSeen) -> str | None:
        if not seen.present or seen.taint.key != self.key:
            return None
        return "" if seen.taint == self.taint else f"the node carries {seen.taint} instead"

    def seen(self, history: History, node: str | None) -> list[Sighting]:
        """Return the sightings of the taint, even from before the fault: the baseline has seen the node without it."""
        return self.ever_seen(history, node)


class Taints(Expectation):
    order: ClassVar = 50
    needs: ClassVar = NodeRole.GPU

    taints: tuple[ExpectedTaint, ...] = ()
    """Taints that must appear on the target."""
