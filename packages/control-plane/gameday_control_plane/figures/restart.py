"""The API servers' memory before and after a restart by the run. With several servers, each figure is the median."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.report.figure import Figure
from gameday_control_plane.checks.restart_drop import restart_drops

_LIVE = "go_gc_heap_live_bytes"


def figures(plan: Plan, history: History, frames: Frames) -> list[Figure]:
    return list(_figures(plan, history, frames))


def _figures(plan: Plan, history: History, frames: Frames) -> Iterator[Figure]:
    resident = restart_drops(plan, history, frames).values()
    live = restart_drops(plan, history, frames, _LIVE).values()
    for name, drops in (("memory", resident), ("live heap", live)):
        if drops:
            for side, values in (("before", [one.before for one in drops]), ("after", [one.after for one in drops])):
                yield Figure(name=f"API server: {name} {side} the restart", unit="MiB", value=median(values) / 2**20)
    if resident:
        freed = median(one.before - one.after for one in resident)
        yield Figure(name="API server: memory that the restart freed", unit="MiB", value=freed / 2**20)
        share = median(one.share for one in resident)
        yield Figure(name="API server: restart drop", unit="%", value=100 * share)
