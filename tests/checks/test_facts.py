"""Facts that checks and the report write for people."""

from __future__ import annotations

import pytest

from gameday.checks.facts import seconds_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.31, "0.31 s"), (4.2, "4.2 s"), (125, "2 min 05 s"), (7500, "2 h 05 min"), (float("inf"), "inf s")],
)
def test_a_duration_is_written_for_people_whatever_a_history_says(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text
