"""Arms side by side: verdicts counted, medians with their spread, ratios to the first arm, one exit code."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gameday.checks.outcome import RunOutcome
from gameday.checks.verdict import Status
from gameday.plan.arms import ExpectedRatio
from gameday.runs.comparison import Comparison, compare
from tests.runs.comparison_builders import arm, played, record, verdict

ARMS = (arm("a"), arm("b"))


def timed(*seconds: tuple[float | None, float | None]) -> Comparison:
    """Compare a and b by their seconds in each repetition."""
    content = record(*ARMS, repetitions=len(seconds))
    flat = [value for pair in seconds for value in pair]
    return compare(content, [played(place, seconds=one) for place, one in zip(content.runs, flat, strict=True)])


def test_a_figure_has_median_spread_and_the_ratio_to_the_first_arm() -> None:
    (row,) = timed((10, 30), (20, 40), (40, 40)).figures
    first, other = row.cells
    assert (first.median, first.least, first.most, first.ratio) == (20, 10, 40, 1)
    assert (other.median, other.ratio, other.ratio_least, other.ratio_most) == (40, 2, 1, 3)


def test_what_was_not_measured_is_no_zero_and_has_no_ratio() -> None:
    (row,) = timed((None, 3), (None, 5)).figures
    first, other = row.cells
    assert (first.median, first.ratio, first.values) == (None, None, (None, None))
    assert (other.median, other.ratio, other.ratio_least) == (4, None, None)


def test_a_first_arm_of_zero_gives_no_ratio() -> None:
    (row,) = timed((0, 3)).figures
    assert row.cells[1].ratio is None


def test_expectations_are_counted_over_the_repetitions() -> None:
    content = record(arm("a"), arm("b", may_break=["x"]), repetitions=2)
    statuses = [Status.HELD, Status.BROKEN, Status.HELD, Status.UNKNOWN]
    runs = [played(place, verdicts=[verdict("x", one)]) for place, one in zip(content.runs, statuses, strict=True)]
    (row,) = compare(content, runs).expectations
    first, other = row.cells
    assert (first.held, first.status, first.is_as_wanted) == (2, Status.HELD, True)
    assert (other.broken, other.unknown, other.wanted, other.is_as_wanted) == (1, 1, "may break", True)


def test_an_expectation_of_one_arm_only_is_not_asked_in_the_other() -> None:
    content = record(*ARMS)
    runs = [played(content.runs[0], verdicts=[verdict("x", Status.HELD)]), played(content.runs[1])]
    (row,) = compare(content, runs).expectations
    assert [cell.status for cell in row.cells] == [Status.HELD, Status.NOT_ASKED]


def test_the_exit_code_is_the_worst_of_the_game_days() -> None:
    content = record(*ARMS)
    outcomes = [RunOutcome.PASSED, RunOutcome.FAILED]
    runs = [played(place, one) for place, one in zip(content.runs, outcomes, strict=True)]
    assert compare(content, runs).result.exit_code == 1


def test_game_days_that_were_not_played_are_told_and_count_as_aborted() -> None:
    content = record(*ARMS, stopped="operator: SIGINT received")
    found = compare(content, [played(content.runs[0])])
    assert found.result.exit_code == 3
    assert "The comparison was stopped: operator: SIGINT received." in found.result.why
    assert [run.outcome for column in found.arms for run in column.runs] == [RunOutcome.PASSED, None]


def test_a_killed_comparison_does_not_pass() -> None:
    content = record(*ARMS)
    assert compare(content, [played(content.runs[0])]).result.exit_code == 3


@given(st.lists(st.tuples(*[st.floats(0.001, 1e6)] * 2), min_size=1, max_size=5))
def test_a_median_lies_within_its_spread(seconds: list[tuple[float, float]]) -> None:
    (row,) = timed(*seconds).figures
    for cell in row.cells:
        assert cell.median is not None and cell.least is not None and cell.most is not None
        assert cell.least <= cell.median <= cell.most
        assert cell.ratio is not None and math.isfinite(cell.ratio)


@pytest.mark.parametrize(
    ("seconds", "status", "code", "says"),
    [
        ((10, 20), Status.HELD, 0, "2 passed"),
        ((10, 40), Status.BROKEN, 1, "Between the arms does not hold: time to return (b)."),
        ((10, None), Status.UNKNOWN, 2, "Not measured: time to return (b)."),
        ((0, 10), Status.UNKNOWN, 2, "Not measured"),
    ],
)
def test_what_must_hold_between_the_arms_is_judged_by_their_medians(
    seconds: tuple[float | None, float | None], status: Status, code: int, says: str
) -> None:
    expected = ExpectedRatio(figure="time to return", of="b", against="a", at_least=1.7, at_most=2.3)
    content = record(*ARMS).model_copy(update={"expect": (expected,)})
    runs = [played(place, seconds=one) for place, one in zip(content.runs, seconds, strict=True)]
    found = compare(content, runs)
    assert [row.status for row in found.ratios] == [status]
    assert found.result.exit_code == code
    assert says in found.result.why


def test_a_ratio_beside_what_others_found_is_shown_and_fails_nothing() -> None:
    shown = ExpectedRatio(figure="time to return", of="b", against="a", published="the talk saw about 2")
    absent = shown.model_copy(update={"figure": "never measured"})
    content = record(*ARMS).model_copy(update={"expect": (shown, absent)})
    found = compare(content, [played(place, seconds=one) for place, one in zip(content.runs, (10, 90), strict=True)])
    assert [(row.ratio, row.status) for row in found.ratios] == [(9, Status.NOT_ASKED), (None, Status.NOT_ASKED)]
    assert found.result.exit_code == 0


def test_a_refused_comparison_says_nothing_between_its_arms() -> None:
    expected = ExpectedRatio(figure="time to return", of="b", against="a", at_most=2)
    content = record(*ARMS).model_copy(update={"expect": (expected,)})
    assert compare(content, [played(place, RunOutcome.REFUSED) for place in content.runs]).result.exit_code == 5
