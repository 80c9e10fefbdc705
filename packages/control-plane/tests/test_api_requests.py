"""Readings of a request log."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gameday_control_plane.values.api_requests import ApiRequest, busy_seconds, max_overlap, percentile

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def request(first_byte: float | None, end: float, status: int = 200) -> ApiRequest:
    return ApiRequest(
        client=0,
        round=0,
        attempt=1,
        sent_at=NOON,
        start=0.0,
        first_byte=first_byte,
        end=end,
        status=status if first_byte is not None else 0,
        bytes=0,
    )


SPANS = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda pair: (min(pair), max(pair)))


@given(st.lists(SPANS, max_size=30))
def test_the_overlap_is_the_largest_number_at_any_one_moment(spans: list[tuple[int, int]]) -> None:
    halves = [moment + 0.5 for moment in range(30)]
    counted = max(sum(first < at < end for first, end in spans) for at in halves)
    assert max_overlap(request(float(first), float(end)) for first, end in spans) == counted


@given(st.lists(st.integers(0, 60), max_size=40, unique=True), st.integers(0, 20))
def test_short_spells_can_be_left_out(ends: list[int], longer_than: int) -> None:
    spans = [(min(pair), max(pair)) for pair in zip(ends[::2], ends[1::2], strict=False)]
    counts = [sum(first < at + 0.5 < end for first, end in spans) for at in range(61)]

    def longest(level: int) -> int:
        """Return the longest time for which so many are under way."""
        return max(len(spell) for spell in "".join("x" if one >= level else " " for one in counts).split(" "))

    lasting = max((level for level in range(1, 21) if longest(level) > longer_than), default=0)
    assert max_overlap((request(float(a), float(b)) for a, b in spans), float(longer_than)) == lasting


def test_refusals_and_requests_without_an_answer_do_not_overlap() -> None:
    assert max_overlap([request(1.0, 3.0), request(1.0, 3.0, status=429), request(None, 3.0)]) == 1
    assert max_overlap([]) == 0


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_is_the_smallest_value_that_enough_others_do_not_exceed(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9
    assert sum(value < found for value in values) < share * len(values)


def test_there_is_no_percentile_of_nothing() -> None:
    assert percentile([], 0.5) is None


def test_the_busy_time_counts_what_overlaps_once_and_pauses_never() -> None:
    spans = ((6.0, 7.0), (1.0, 3.0), (2.0, 2.5), (2.9, 4.0))
    requests = [request(end, end).model_copy(update={"start": start}) for start, end in spans]
    assert busy_seconds(requests) == pytest.approx(4.0)
    assert busy_seconds([]) == 0.0
