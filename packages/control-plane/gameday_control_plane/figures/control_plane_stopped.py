"""A program of the control plane that was paused or restarted: for how long, and the cost to its clients."""

from __future__ import annotations

from collections.abc import Iterator

from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.report.figure import Figure
from gameday_control_plane.events import LoadMeasured
from gameday_control_plane.values.api_loads import Outcome, Paused, Reconnected


def figures(plan: Plan, history: History, frames: Frames) -> list[Figure]:
    found: list[Figure] = []
    for event in history.of(LoadMeasured):
        if isinstance(event.measured, Paused):
            paused = event.measured
            seconds = (paused.resumed_at - paused.paused_at).total_seconds()
            found.append(Figure(name=f"{paused.component}: length of its pause", unit="s", value=seconds))
        elif isinstance(event.measured, Reconnected):
            found += _reconnected(event.measured)
    return found


def _reconnected(measured: Reconnected) -> Iterator[Figure]:
    back = [seconds for seconds in measured.back_after_s if seconds is not None]
    yield Figure(name="clients after a restart: never back", unit="", value=float(measured.clients - len(back)))
    if back:
        yield Figure(name="clients after a restart: until the last is back", unit="s", value=max(back))
    yield Figure(name="clients after a restart: most LISTs of one", unit="", value=float(max(measured.lists)))
    for outcome, name in (
        (Outcome.THROTTLED, "told to come later (429)"),
        (Outcome.NO_CONNECTION, "requests without a connection"),
        (Outcome.TIMEOUT, "time-outs"),
    ):
        count = measured.outcomes.get(outcome, 0)
        yield Figure(name=f"clients after a restart: {name}", unit="", value=float(count))
