"""Labels that must appear on the target; the check node-as-before judges whether they go again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

from gameday.documents.fields import Bound, LabelKey, LabelValue
from gameday.expect.base import Expectation, Signal
from gameday.history.events import LabelSeen
from gameday.values.nodes import NodeRole, NodeSnapshot


class ExpectedLabel(Signal):
    """A label that must appear or change on the target."""

    event: ClassVar = LabelSeen
    check: ClassVar = "label-set"

    key: LabelKey
    """Key of the label."""
    value: LabelValue | None = None
    """Value of the label; null: any value that it did not have before."""
    within: Bound
    """Longest time from the fault going in until the label is on the node."""

    def __str__(self) -> str:
        return f"label {self.key}"

    def comes(self, node: str) -> str:
        value = "" if self.value is None else f"={self.value}"
        return f"Label {self.key}{value} is put on {node}"

    def already(self, seen: NodeSnapshot, signs: Mapping[str, str]) -> str:
        has = seen.labels.get(self.key)
        return "" if has is None or self.value not in (None, has) else f"label {self.key} is already {has}"

    def amiss(self, seen: LabelSeen) -> str | None:
        if seen.label != self.key or seen.value is None:
            return None
        return "" if self.value in (None, seen.value) else f"{seen.label}={seen.value} instead"


class Labels(Expectation):
    order: ClassVar = 53
    needs: ClassVar = NodeRole.GPU

    labels: tuple[ExpectedLabel, ...] = ()
    """Labels that must appear on the target."""
    labels_left: tuple[LabelKey, ...] = ()
    """Keys of labels that may differ when the game-day ends, such as a detector's note of when it cordoned the node."""

    @classmethod
    def is_asked(cls, expect: Self) -> bool:
        return bool(expect.labels)
