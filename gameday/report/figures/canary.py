"""The canary job's measurements before, during and after the fault: the median over the targets."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from gameday.history.events import CanaryMeasured
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.report.figure import Figure

_WHEN = {"before": "before the fault", "during": "during the fault", "after": "after the repair"}


def figures(plan: Plan, history: History, frames: Frames) -> list[Figure]:
    measured: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in history.of(CanaryMeasured):
        if event.value is not None:
            measured[f"canary: {event.measure} {_WHEN[event.phase]}", event.unit].append(event.value)
        if event.latency_ms is not None:
            measured[f"canary: latency of {event.measure} {_WHEN[event.phase]}", "ms"].append(event.latency_ms)
    return [Figure(name=name, unit=unit, value=median(values)) for (name, unit), values in measured.items()]
