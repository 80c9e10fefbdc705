"""Node conditions that must report the fault and withdraw the report after the remediation."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import ClassVar

from gameday.documents.fields import Bound, ConditionStatus, ConditionType, Reason
from gameday.expect.base import Expectation, Sighting, Signal, since_fault
from gameday.history.events import ConditionSeen, NodeReplaced
from gameday.history.journal import History
from gameday.values.nodes import NodeRole, NodeSnapshot


class ExpectedCondition(Signal):
    """A node condition that must report the fault and withdraw the report after the remediation."""

    event: ClassVar = ConditionSeen
    check: ClassVar = "condition-set"
    ends_check: ClassVar = "condition-clears"
    ends_by: ClassVar = "clears_within"

    type: ConditionType
    """Type of the condition, such as `SysLogsXIDError`."""
    status: ConditionStatus
    """Status that reports the fault: conditions differ in whether True or False means trouble."""
    reason: Reason | None = None
    """Reason of the condition, such as `NvidiaXID79Error`; null: any."""
    within: Bound
    """Longest time from the fault going in until the condition has this status."""
    clears_within: Bound | None = timedelta(minutes=5)
    """Longest time from the end of the remediation until the condition has another status; null: a person clears it."""

    def __str__(self) -> str:
        return f"{self.type}={self.status}"

    def comes(self, node: str) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        return f"Condition {self.type} of {node} becomes {self.status}{reason}"

    def ends(self, node: str) -> str:
        return f"Condition {self.type} of {node} is {self.status} no longer after remediation"

    def awaited(self, node: str) -> str:
        return f"condition {self} of {node}"

    def awaited_end(self, node: str) -> str:
        return f"condition {self.type} of {node} to clear"

    def already(self, seen: NodeSnapshot, signs: Mapping[str, str]) -> str:
        is_there = seen.conditions.get(self.type) == self.status
        return f"condition {self.type} is already {self.status}" if is_there else ""

    def amiss(self, seen: ConditionSeen) -> str | None:
        if (seen.condition, seen.status) != (self.type, self.status):
            return None
        return "" if self.reason in (None, seen.reason) else f"reason {seen.reason or 'none'} instead"

    def is_end(self, seen: ConditionSeen) -> bool:
        return seen.condition == self.type and seen.status != self.status

    def gone(self, history: History, node: str | None) -> list[Sighting]:
        """Return the sightings of another status, or that the condition was gone with its node."""
        replaced = [Sighting(record, one.at) for record, one in history.about(NodeReplaced, node)]
        return [*super().gone(history, node), *since_fault(history, node, replaced)]


class Conditions(Expectation):
    order: ClassVar = 52
    needs: ClassVar = NodeRole.GPU

    conditions: tuple[ExpectedCondition, ...] = ()
    """Node conditions that must report the fault."""
