"""The API servers' memory before and after a restart of the run's own. Of several servers each figure is the median."""

from __future__ import annotations

from statistics import median

from gameday.checks.restart_drop import restart_drops
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.report.figure import Figure


def figures(plan: Plan, history: History, frames: Frames) -> list[Figure]:
    drops = restart_drops(plan, history, frames).values()
    if not drops:
        return []
    return [
        Figure(name=f"API server: {name}", unit=unit, value=median(values))
        for name, unit, values in (
            ("memory before the restart", "MiB", [drop.before / 2**20 for drop in drops]),
            ("memory after the restart", "MiB", [drop.after / 2**20 for drop in drops]),
            ("memory that the restart freed", "MiB", [(drop.before - drop.after) / 2**20 for drop in drops]),
            ("restart drop", "%", [100 * drop.share for drop in drops]),
        )
    ]
