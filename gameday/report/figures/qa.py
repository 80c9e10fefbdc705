"""QA's measurements of the repaired nodes: the median over GPUs and nodes of each check that has a number."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from gameday.history.events import QaChecked
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.report.figure import Figure


def figures(plan: Plan, history: History, frames: Frames) -> list[Figure]:
    measured: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in history.of(QaChecked):
        if isinstance(event.value, float):
            measured[event.check, event.unit].append(event.value)
    return [Figure(name=f"QA: {check}", unit=unit, value=median(values)) for (check, unit), values in measured.items()]
