"""A bound is judged by the moments between which a signal came: its own time, what that leaves open, and the sight."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gameday.checks.facts import dated_text, judge_duration
from gameday.checks.verdict import Status
from gameday.values.dated import Dated

START = datetime(2026, 3, 3, 9, tzinfo=UTC)
BOUND = timedelta(seconds=15)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def dated(own: float | None, seen: float, open_s: float = 0.0, absent: float | None = None) -> Dated:
    return Dated(
        own=None if own is None else at(own),
        source="its stamp",
        open_s=open_s,
        absent_at=None if absent is None else at(absent),
        seen_at=at(seen),
    )


def judged(found: Dated) -> tuple[Status, float]:
    status, seconds, _ = judge_duration(START, found.latest, BOUND, found)
    return status, seconds


@pytest.mark.parametrize(
    ("found", "status", "seconds"),
    [
        (dated(14.999, 40), Status.HELD, 14.999),
        (dated(15.001, 40), Status.BROKEN, 15.001),
        # A stamp of whole seconds is cut: it came within the second after it, and not after it was seen.
        (dated(14, 40, 1.0), Status.HELD, 15.0),
        (dated(14.5, 40, 1.0), Status.UNKNOWN, 15.5),
        (dated(14.5, 14.9, 1.0), Status.HELD, 14.9),
        (dated(15.001, 40, 1.0), Status.BROKEN, 16.001),
        # Only the run's looks date it: it came between the last without it and the first with it.
        (dated(None, 14.9), Status.HELD, 14.9),
        (dated(None, 15.1, absent=14.9), Status.UNKNOWN, 15.1),
        (dated(None, 15.3, absent=15.1), Status.BROKEN, 15.3),
        # The looks refute the stamp, which then keeps nothing from being unknown.
        (dated(40, 14.9), Status.HELD, 14.9),
        (dated(40, 15.3, absent=15.1), Status.BROKEN, 15.3),
        (dated(-5, 14.9, absent=14.7), Status.HELD, 14.9),
        (dated(-5, 15.3, absent=15.1), Status.UNKNOWN, 15.3),
        # Within the tolerance of two clocks it does not come after it was seen, nor before the fault.
        (dated(15.5, 14.9), Status.HELD, 14.9),
        (dated(-0.5, 0.2), Status.HELD, 0.0),
    ],
)
def test_a_bound_is_kept_or_broken_only_where_every_moment_says_so(
    found: Dated, status: Status, seconds: float
) -> None:
    assert judged(found) == (status, pytest.approx(seconds))


def test_an_own_time_long_before_the_fault_is_no_duration() -> None:
    assert judged(dated(-5, 0.2)) == (Status.UNKNOWN, 0.0)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (dated(0.26, 0.69).model_copy(update={"every_s": 0.25}), "its stamp, ± 0.25 s evaluation; seen at 0.69 s"),
        (dated(-0.5, 0.2), "its stamp, by its clock 0.50 s before its cause; seen at 0.20 s"),
        (dated(3, 9.5, 1.0), "its stamp, to 1.0 s; seen at 9.5 s"),
        (dated(3, 3.1, 1.0), "as seen; its own time agrees, to 1.0 s"),
        (dated(9, 3.1), "as seen: by the clock of its source it came 5.9 s after it was seen"),
        (dated(1, 9, absent=8), "as seen: by the clock of its source it came 7.0 s before a look that did not show it"),
        (dated(None, 3.1, absent=3), ""),
        (None, ""),
    ],
)
def test_it_is_said_what_dated_a_signal(found: Dated | None, text: str) -> None:
    assert dated_text(found, START) == text


def test_the_page_says_between_which_moments_a_signal_came() -> None:
    found = dated(14.5, 40, 1.0)
    why = judge_duration(START, found.latest, BOUND, found)[2]
    assert why == "it came between 14.5 s and 15.5 s after, and the bound lies between"
