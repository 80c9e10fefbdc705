"""The skew index: computed from counters, healed or not, with a verdict of three values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest

from gameday.history.frames import conform
from gameday_control_plane.checks.skew import SkewIndex, healed_after, load_index
from gameday_control_plane.values.api_loads import SteadyLoad, SteadySecond

START = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


def rows(server: str, points: list[tuple[float, float]], **changes: str) -> list[dict[str, object]]:
    constant = {"priority_level": "", "flow_schema": "", "group": "", "labels": "", "server": server}
    constant |= {"metric": "apiserver_request_total", "verb": "GET", "resource": "secrets", "code": "200"} | changes
    return [{"time": pd.Timestamp(START + timedelta(seconds=at)), "value": value, **constant} for at, value in points]


def load(watch_only: bool = False, ended_s: float = 30) -> SteadyLoad:
    return SteadyLoad(
        clients=6,
        rate=1,
        protocol="http2",
        watch_only=watch_only,
        began_at=START,
        ended_at=START + timedelta(seconds=ended_s),
        cpu_seconds=0,
        seconds=(SteadySecond(at=START, requests=100, refused=1, lost=2),),
    )


def index(frame: list[dict[str, object]], **changes: bool) -> list[float]:
    return [round(one.value, 3) for one in load_index(conform("api_server", frame), load(**changes), START)]


def test_a_load_on_one_of_three_servers_is_three() -> None:
    frame = rows("a", [(0, 100.0), (30, 400.0)])
    frame += rows("b", [(0, 5.0), (30, 5.0)]) + rows("c", [(10, 3.0), (30, 3.0)], resource="pods")
    assert index(frame) == [3.0] * 5


def test_servers_that_come_later_count_from_nothing() -> None:
    frame = rows("a", [(0, 100.0), (10, 200.0), (30, 300.0)])
    frame += rows("b", [(10, 0.0), (30, 100.0)])
    assert index(frame) == [2.0, 2.0, 1.0, 1.0, 1.0]


def test_several_series_of_a_server_are_added() -> None:
    frame = rows("a", [(0, 0.0), (30, 30.0)], code="200") + rows("a", [(0, 0.0), (30, 30.0)], code="404")
    frame += rows("b", [(0, 0.0), (30, 60.0)])
    assert index(frame) == [1.0] * 5


def test_watches_are_counted_as_they_stand() -> None:
    watches = {"metric": "apiserver_longrunning_requests", "verb": "WATCH", "code": ""}
    frame = rows("a", [(0, 60.0), (30, 60.0)], **watches) + rows("b", [(0, 0.0), (30, 0.0)], **watches)
    assert index(frame, watch_only=True) == [2.0] * 5
    assert index(frame) == [], "and are no requests"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0, 2.0, 1.2, 1.2, 1.1], 15.0),
        # One moment below it is chance.
        ([3.0, 1.2, 2.0, 1.2, 1.1], 20.0),
        ([3.0, 2.0, 1.3, 1.3], None),
        ([1.2], None),
        ([], None),
    ],
)
def test_healed_is_below_the_bound_twice_running(values: list[float], expected: float | None) -> None:
    series = [SkewIndex(START + timedelta(seconds=5 * n), value) for n, value in enumerate(values, 1)]
    assert healed_after(series, 1.3, START) == expected


def test_what_failed_leaves_out_what_was_sent_again() -> None:
    assert (load().requests, load().failed) == (100, 3)
