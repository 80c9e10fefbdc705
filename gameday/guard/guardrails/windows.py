"""The time windows in which game-days may run, each in its own time zone."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from typing import ClassVar
from zoneinfo import ZoneInfo

from gameday.guard.base import Guardrail, Measurement
from gameday.guard.observation import Observation
from gameday.plan.limits import TimeWindow, Weekday

_WEEKDAYS = tuple(Weekday)


class Windows(Guardrail):
    """Requires an open window of the plan and one of the profile, if they set any."""

    name: ClassVar[str] = "time windows"
    interval_s: ClassVar[float | None] = 1.0
    needs_targets: ClassVar[bool] = False

    def limit(self, observation: Observation) -> str:
        sets = [f"{' or '.join(map(describe_window, windows))} ({source})" for source, windows in observation.windows]
        return " and ".join(sets)

    def measure(self, observation: Observation) -> Measurement:
        closes: list[datetime] = []
        for source, windows in observation.windows:
            ends = [end for window in windows if (end := open_until(window, observation.now)) is not None]
            if not ends:
                return Measurement(
                    False, f"{observation.now:%a %H:%M} UTC", f"no window of the {source} is open", "come back then"
                )
            closes.append(max(ends))
        return Measurement(True, f"open until {min(closes):%a %H:%M %Z}")


def open_until(window: TimeWindow, now: datetime) -> datetime | None:
    """Return when an open window closes, in its own zone; None if it is closed.

    Windows are wall-clock times, so they keep their hours when the clocks change.
    """
    zone = ZoneInfo(window.zone)
    local = now.astimezone(zone)
    for day in (local.date() - timedelta(days=1), local.date()):
        if _WEEKDAYS[day.weekday()] not in window.days:
            continue
        start = datetime.combine(day, _time(window.start), zone)
        last_day = day + timedelta(days=1) if window.end == "24:00" or window.end <= window.start else day
        end = datetime.combine(last_day, _time(window.end), zone)
        # Compare moments, because between datetimes of one zone Python compares only the wall clocks.
        if start.timestamp() <= now.timestamp() < end.timestamp():
            return end
    return None


def describe_window(window: TimeWindow) -> str:
    """Return a window in words: days, hours, zone."""
    days = "every day" if set(window.days) == set(Weekday) else ", ".join(window.days)
    return f"{days} {window.start}–{window.end} {window.zone}"


def _time(written: str) -> time:
    return time() if written == "24:00" else time.fromisoformat(written)
