"""Kubernetes Events that must be written about the target, dated by their own time stamps."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from gameday.documents.fields import Bound, Reason
from gameday.expect.base import Expectation, Signal
from gameday.history.events import KubernetesEventSeen
from gameday.values.nodes import NodeRole


class ExpectedEvent(Signal):
    """A Kubernetes Event about the target."""

    event: ClassVar = KubernetesEventSeen
    check: ClassVar = "event-written"
    watch: ClassVar = "events"

    reason: Reason
    """Reason of the Event, such as `GPUXid79`."""
    type: str | None = Field(default=None, min_length=1, max_length=128)
    """Type of the Event: Normal, Warning, or another that the detector writes; null: any."""
    within: Bound
    """Longest time from the fault going in to the Event's own time stamp."""

    def __str__(self) -> str:
        return f"Event {self.reason}"

    def comes(self, node: str) -> str:
        return f"Event {self.reason} is written about {node}"

    def amiss(self, seen: KubernetesEventSeen) -> str | None:
        if seen.reason != self.reason:
            return None
        return "" if self.type in (None, seen.type) else f"one of type {seen.type} instead"


class Events(Expectation):
    order: ClassVar = 54
    needs: ClassVar = NodeRole.GPU

    events: tuple[ExpectedEvent, ...] = ()
    """Kubernetes Events that must be written about the target."""
