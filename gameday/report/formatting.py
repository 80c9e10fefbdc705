"""Write values for people: durations, offsets, times, numbers, sizes. A missing value reads `not measured`."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from markupsafe import Markup

from gameday.checks.facts import seconds_text

NOT_MEASURED = "not measured"


def duration(seconds: float | None) -> str:
    """Write a duration as `0.31 s`, `4.2 s` or `2 min 05 s`."""
    return NOT_MEASURED if seconds is None or not math.isfinite(seconds) else seconds_text(seconds)


def limit(seconds: float) -> str:
    """Write a bound as the plan has it: `30 s`, not `30.0 s`."""
    return f"{seconds:g} s" if seconds < 120 else seconds_text(seconds)


def sentence(text: str) -> str:
    """Put the first letter into upper case and leave the rest, which may contain names."""
    return text[:1].upper() + text[1:]


def offset(seconds: float | None) -> str:
    """Write an instant relative to T+0: `T+4.2 s`, `T−12.0 s`."""
    if seconds is None or not math.isfinite(seconds):
        return NOT_MEASURED
    return f"T{'−' if seconds < 0 else '+'}{seconds_text(abs(seconds))}"


def change(seconds: float) -> str:
    """Write a difference: `1.2 s slower than`, `0.30 s faster than`; below 5 ms `the same as in`."""
    if abs(seconds) < 0.005:
        return "the same as in"
    return f"{seconds_text(abs(seconds))} {'slower' if seconds > 0 else 'faster'} than"


def clock(at: datetime | None) -> str:
    """Write the time of day in UTC, `09:00:12.4`; the page's script can convert it to the reader's zone."""
    return NOT_MEASURED if at is None else _time(at, clock_text(at), "clock")


def moment(at: datetime | None) -> str:
    """Write date and time in UTC; the page's script adds the reader's own zone."""
    return NOT_MEASURED if at is None else _time(at, moment_text(at), "moment")


def clock_text(at: datetime | None) -> str:
    """Write the time of day in UTC as plain text."""
    return NOT_MEASURED if at is None else f"{at.astimezone(UTC):%H:%M:%S.}{at.microsecond // 100_000}"


def moment_text(at: datetime | None) -> str:
    """Write date and time in UTC as plain text."""
    return NOT_MEASURED if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _time(at: datetime, text: str, kind: str) -> Markup:
    return Markup('<time class="{}" datetime="{}">{}</time>').format(kind, at.astimezone(UTC).isoformat(), text)


def number(value: float | int | str | None) -> str:
    """Write a number with at least three significant places, grouped thousands and no trailing zeros.

    Text is returned as it is.
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return NOT_MEASURED
    if isinstance(value, str):
        return value
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) < 100 else f"{value:.1f}"


def signed(value: float | None) -> str:
    """Write a number with its sign and one decimal; zero has no sign."""
    if value is None or not math.isfinite(value):
        return NOT_MEASURED
    return f"{value:+.1f}".replace("-", "−") if abs(value) >= 0.05 else "0.0"


def size(count: int | None) -> str:
    """Write a number of bytes as `512 B`, `1.2 kB` or `3.40 MB` (decimal units)."""
    if count is None:
        return NOT_MEASURED
    if count < 1000:
        return f"{count} B"
    return f"{count / 1000:.1f} kB" if count < 1_000_000 else f"{count / 1_000_000:.2f} MB"
