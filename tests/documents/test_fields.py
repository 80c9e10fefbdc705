"""Durations: the spellings that are read, and the one that is written."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gameday.documents.fields import format_duration, parse_duration


@given(st.integers(0, 10**9))
def test_a_formatted_duration_reads_back_the_same(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize(("text", "seconds"), [("60s", 60), ("5m", 300), ("1m30s", 90), ("500ms", 0.5), ("1.5h", 5400)])
def test_a_duration_is_read_with_its_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "60", "s", "60 s", "60S", "-5s", "1d", "١s", "5m?", " 5m", "1" * 30 + "s"])
def test_other_spellings_of_a_duration_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a duration is written with its unit"):
        parse_duration(text)
