"""When game-days may run: windows that are open, with the zone they are meant in."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from typing import ClassVar
from zoneinfo import ZoneInfo

from gameday.guard.base import Finding, Guardrail
from gameday.guard.observation import Observation
from gameday.plan.limits import TimeWindow, Weekday

_WEEKDAYS = tuple(Weekday)


class Windows(Guardrail):
    name: ClassVar[str] = "time windows"
    every_s: ClassVar[float | None] = 1.0
    needs_targets: ClassVar[bool] = False

    def limit(self, observation: Observation) -> str:
        sets = [f"{' or '.join(map(shown, windows))} ({source})" for source, windows in observation.windows]
        return " and ".join(sets)

    def measure(self, observation: Observation) -> Finding:
        closes: list[datetime] = []
        for source, windows in observation.windows:
            ends = [end for window in windows if (end := open_until(window, observation.now)) is not None]
            if not ends:
                return Finding(
                    False, f"{observation.now:%a %H:%M} UTC", f"no window of the {source} is open", "come back then"
                )
            closes.append(max(ends))
        return Finding(True, f"open until {min(closes):%a %H:%M %Z}")


def open_until(window: TimeWindow, now: datetime) -> datetime | None:
    """When the window that is open now closes, in its own zone; None while it is closed.

    Wall-clock times, so that a window keeps its hours when the clocks change.
    """
    zone = ZoneInfo(window.zone)
    local = now.astimezone(zone)
    for day in (local.date() - timedelta(days=1), local.date()):
        if _WEEKDAYS[day.weekday()] not in window.days:
            continue
        start = datetime.combine(day, _time(window.start), zone)
        last_day = day + timedelta(days=1) if window.end == "24:00" or window.end <= window.start else day
        end = datetime.combine(last_day, _time(window.end), zone)
        # By the moment, not by the wall clock: between datetimes of one zone Python compares only the latter.
        if start.timestamp() <= now.timestamp() < end.timestamp():
            return end
    return None


def shown(window: TimeWindow) -> str:
    days = "every day" if set(window.days) == set(Weekday) else ", ".join(window.days)
    return f"{days} {window.start}–{window.end} {window.zone}"


def _time(written: str) -> time:
    return time() if written == "24:00" else time.fromisoformat(written)
