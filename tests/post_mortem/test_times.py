from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gameday.errors import WindowError
from gameday.post_mortem.times import parse_moment, parse_window

NOW = datetime(2026, 3, 3, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("now", NOW),
        ("2h ago", NOW - timedelta(hours=2)),
        ("1h 30m ago", NOW - timedelta(minutes=90)),
        ("2026-03-03T09:00:00Z", NOW - timedelta(hours=3)),
        ("2026-03-03T09:00+01:00", NOW - timedelta(hours=4)),
        ("2026-03-03 09:00Z", NOW - timedelta(hours=3)),
    ],
)
def test_a_moment_is_read_as_people_write_it(text: str, meant: datetime) -> None:
    assert parse_moment(text, NOW) == meant


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "2 hours", "ago", "-2h ago", "1e9h ago", "99999999999h ago", "2026-13-01T00:00Z", "a" * 9999],
)
def test_what_is_no_moment_is_refused_with_how_to_write_one(text: str) -> None:
    with pytest.raises(WindowError, match="write 2026-03-03T09:00:00Z"):
        parse_moment(text, NOW)


def test_a_time_without_a_zone_is_not_guessed() -> None:
    with pytest.raises(WindowError, match="no time zone"):
        parse_moment("2026-03-03T09:00", NOW)


def test_the_edge_of_time_is_refused() -> None:
    with pytest.raises(WindowError):
        parse_moment("0001-01-01T00:00+14:00", NOW)


@pytest.mark.parametrize(
    ("start", "end", "why"),
    [
        ("1h ago", "2h ago", "before it begins"),
        ("2030-01-01T00:00Z", "2030-01-02T00:00Z", "future"),
        ("48h ago", "now", "24 h at most"),
    ],
)
def test_a_window_that_cannot_be_is_refused(start: str, end: str, why: str) -> None:
    with pytest.raises(WindowError, match=why):
        parse_window(start, end, NOW)


def test_a_window_ends_now_at_the_latest() -> None:
    assert parse_window("1h ago", "2026-03-04T00:00Z", NOW)[1] == NOW
