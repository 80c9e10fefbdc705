"""The value that every source of signals makes: something that was seen about a node, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from gameday.xid.lines import KernelEvent


class SignalKind(StrEnum):
    """The sources of signals; each is also a key of a policy's rule."""

    KERNEL_LOG = "kernel-log"
    ALERT = "alert"
    CONDITION = "condition"
    EVENT = "event"
    METRIC = "metric"
    POD_LOG = "pod-log"


@dataclass(frozen=True, slots=True)
class Signal:
    """A sign that something is wrong with a node."""

    node: str
    kind: SignalKind
    name: str
    """The alert's name, the condition's type, the Event's reason or the metric rule's name; empty for lines of logs."""
    at: datetime
    """The moment at which it happened or began, by its source's clock."""
    seen: datetime
    """The moment at which this process saw it."""
    text: str
    gpu: str | None = None
    """PCI address of the GPU, like 0000:4e:00; None if the signal names none."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """More facts for a rule to match: an alert's labels, `status`, `reason`, `component`, `type`, `namespace`."""
    key: str = ""
    """The identity by which a repetition is recognised, even after a restart: a short digest."""
    event: KernelEvent | None = None
    """The facts in a recognised line of the kernel log."""
    is_begin_known: bool = True
    """False if it began before `at`, at an unknown time."""
