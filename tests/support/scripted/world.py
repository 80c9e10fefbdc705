"""What is true in a scripted cluster beside its API objects: faults, alerts, log lines, and what pods have printed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta


@dataclass(frozen=True)
class Alert:
    """A label set of a rule, from its first evaluation on; times are the cluster's."""

    name: str
    node: str
    labels: tuple[tuple[str, str], ...]
    fired: datetime
    notified: datetime | None = None
    ended: datetime | None = None


@dataclass(frozen=True)
class Line:
    """A line of the kernel log in the log store."""

    at: datetime
    node: str
    text: str


@dataclass
class World:
    """The facts; a copy of the tables is a copy of all, as nothing in them is ever changed."""

    faults_in: set[tuple[str, str]] = field(default_factory=set)
    """Node and injector's pod of every fault that is in."""
    alerts: list[Alert] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    printed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By uid: the lines that a pod has printed."""
    down: set[str] = field(default_factory=set)
    """Nodes whose machine is off."""
    struck_at: datetime | None = None
    """When the first fault went in."""
    out_at: datetime | None = None
    """When the last one came out."""

    def copy(self) -> World:
        """Return a world of its own with the same facts."""
        tables = set(self.faults_in), list(self.alerts), list(self.lines), dict(self.printed), set(self.down)
        return World(*tables, struck_at=self.struck_at, out_at=self.out_at)

    def has_fault(self, node: str) -> bool:
        """Return True if any fault is in on a node."""
        return any(at == node for at, _ in self.faults_in)

    def change_alerts(self, chosen: Callable[[Alert], bool], **change: datetime) -> None:
        """Change every alert that is chosen and has not ended."""
        self.alerts = [replace(one, **change) if one.ended is None and chosen(one) else one for one in self.alerts]

    def active(self) -> list[Alert]:
        """Return the alerts that fire now."""
        return [one for one in self.alerts if one.ended is None]

    def lines_of(self, node: str, start: datetime, end: datetime) -> list[Line]:
        """Return a node's lines with start <= time < end, oldest first."""
        return sorted((one for one in self.lines if one.node == node and start <= one.at < end), key=lambda one: one.at)


EVALUATED_EVERY = timedelta(seconds=1)
"""The pace of rules and scrapes, as in a rehearsal."""
