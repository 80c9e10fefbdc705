"""When a series counts as having left its baseline."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from gameday.history.frames import conform
from gameday.runs.metric_departure import Departure, first_departure, has_baseline

START = datetime(2026, 3, 3, 9, tzinfo=UTC)
FAULT_AT, END_AT = 5, 20


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def rows(values: Sequence[float | None], metric: str = "M", gpu: str = "0") -> list[dict[str, object]]:
    """A sample a second from the start; None where there is none."""
    return [
        {"time": at(second), "node": "n", "gpu": gpu, "metric": metric, "value": value}
        for second, value in enumerate(values)
        if value is not None
    ]


def moved(*series: list[dict[str, object]]) -> Departure | None:
    frame = conform("metrics", [row for one in series for row in one])
    return first_departure(frame, at(FAULT_AT), at(END_AT))


def test_a_code_that_was_zero_has_moved_at_its_first_other_sample() -> None:
    move = moved(rows([0.0] * 8 + [95.0] * 12))
    assert move is not None
    assert (move.at, str(move)) == (at(8), "M of GPU 0 0 → 95")


@pytest.mark.parametrize(
    ("during", "second"),
    [
        ([71, 70, 72, 71, 70, 71], None),
        ([71, 90, 71, 70, 71, 70], None),
        ([71, 90, 91, 90, 90, 90], 6),
        ([60, 50, 50, 50, 50, 50], 5),
        ([75, 76, 77, 78, 77, 76], None),
    ],
    ids=["as before", "one spike", "two in a row", "down", "within a tenth"],
)
def test_a_value_that_varied_has_moved_when_it_stays_outside_its_widened_band(
    during: list[float], second: int | None
) -> None:
    move = moved(rows([70, 72, 71, 70, 71, *during, *during[-1:] * 9]))
    assert (move.at if move else None) == (at(second) if second is not None else None)


def test_a_value_that_stood_still_may_waver_by_a_tenth() -> None:
    assert moved(rows([67.0] * 8 + [68.0] * 12)) is None
    move = moved(rows([700.0] * 8 + [300.0] * 12))
    assert move is not None
    assert str(move) == "M of GPU 0 700 → 300"


def test_what_half_of_the_gpus_do_together_is_their_jobs_doing() -> None:
    pause = [95.0] * 9 + [5.0] * 3 + [95.0] * 8
    assert moved(*(rows(pause, gpu=gpu) for gpu in "0123"), rows([0.0] * 20, gpu="4")) is None


def test_one_gpu_that_departs_among_others_that_pause_later_has_moved() -> None:
    pause = [95.0] * 12 + [5.0] * 3 + [95.0] * 5
    move = moved(*(rows(pause, gpu=gpu) for gpu in "012"), rows([95.0] * 7 + [5.0] * 13, gpu="3"))
    assert move is not None
    assert (move.gpu, move.at) == ("3", at(7))


def test_a_counter_that_counts_on_is_not_looked_at() -> None:
    assert moved(rows([float(second) for second in range(20)])) is None


def test_a_series_that_ends_while_the_fault_is_in_has_ended_at_its_last_sample() -> None:
    move = moved(rows([1.0] * 9))
    assert move is not None
    assert (move.at, str(move)) == (at(8), "M of GPU 0 ended")


def test_a_series_that_lacks_only_its_last_samples_has_not_ended() -> None:
    assert moved(rows([1.0] * 18)) is None


def test_a_series_that_is_scraped_every_half_minute_has_not_ended_before_its_next_scrapes_are_missed() -> None:
    frame = conform("metrics", rows([1.0 if second % 30 == 0 else None for second in range(91)]))
    assert first_departure(frame, at(65), at(125)) is None
    move = first_departure(frame, at(65), at(185))
    assert move is not None
    assert move.value is None


def test_two_samples_before_the_fault_are_too_few_to_tell() -> None:
    series = rows([None, None, None, 1.0, 1.0, *[9.0] * 15])
    assert moved(series) is None
    assert not has_baseline(conform("metrics", series), at(FAULT_AT))


def test_what_moves_after_the_fault_is_out_is_the_repairs_doing() -> None:
    assert moved(rows([1.0] * 21 + [9.0] * 10)) is None


def test_the_earliest_of_all_series_counts() -> None:
    move = moved(rows([0.0] * 12 + [1.0] * 8, "LATE"), rows([0.0] * 7 + [1.0] * 13, "EARLY"))
    assert move is not None
    assert move.metric == "EARLY"
