"""The incident's window as people write it. A guessed time would shift every figure of the report."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gameday.documents.fields import parse_duration
from gameday.errors import WindowError
from gameday.text import shown

LONGEST_WINDOW = timedelta(hours=24)
"""Alerts are read sample by sample; a day of them at a 15 s interval is 5,760 a series, half of what Prometheus hands
out (11,000 a series)."""

_HOW = "write 2026-03-03T09:00:00Z, 2026-03-03T10:00+01:00, `90m ago` or `now`"


def parse_moment(text: str, now: datetime) -> datetime:
    """Parse ISO 8601 with its zone, `now`, or a plan's duration and `ago`. Raises WindowError for anything else."""
    written = text.strip()
    if written == "now":
        return now
    duration, _, ago = written.rpartition(" ")
    if ago == "ago":
        try:
            span = parse_duration(duration.replace(" ", ""))
            assert isinstance(span, timedelta)
            return now - span
        except (ValueError, OverflowError):
            raise WindowError(f"{shown(text)} is not a time: {_HOW}") from None
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        raise WindowError(f"{shown(text)} is not a time: {_HOW}") from None
    if moment.tzinfo is None:
        raise WindowError(f"{shown(text)} has no time zone: add Z for UTC, or an offset like +01:00")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise WindowError(f"{shown(text)} is not a time: {_HOW}") from None


def parse_window(start: str, end: str, now: datetime) -> tuple[datetime, datetime]:
    """Return the checked window, from text."""
    return checked_window(parse_moment(start, now), parse_moment(end, now), now)


def checked_window(first: datetime, last: datetime, now: datetime) -> tuple[datetime, datetime]:
    """Return both ends in UTC, in order, begun by now, at most LONGEST_WINDOW apart. Raises WindowError."""
    first, last = first.astimezone(UTC), min(last.astimezone(UTC), now)
    if first > now:
        raise WindowError(f"the window begins in the future ({first:%Y-%m-%d %H:%M:%S}Z)")
    if first >= last:
        raise WindowError(f"the window ends ({last:%Y-%m-%d %H:%M:%S}Z) before it begins ({first:%Y-%m-%d %H:%M:%S}Z)")
    if last - first > LONGEST_WINDOW:
        raise WindowError(f"the window is {last - first} long; {LONGEST_WINDOW.total_seconds() / 3600:g} h at most")
    return first, last
