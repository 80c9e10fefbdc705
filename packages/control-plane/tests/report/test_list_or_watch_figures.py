"""The figures of a client that follows objects: rates from its first view on, and the API server's own CPU."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest

from gameday.history.frames import conform
from gameday_control_plane.figures.list_or_watch import _client, cores_used
from gameday_control_plane.values.api_loads import Followed, FollowMode, Traffic

START = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


def cpu(server: str, at_s: float, value: float) -> dict[str, object]:
    empty = dict.fromkeys(("priority_level", "flow_schema", "verb", "group", "resource", "code", "labels"), "")
    at = pd.Timestamp(START + timedelta(seconds=at_s))
    return {"time": at, "server": server, "metric": "process_cpu_seconds_total", "value": value, **empty}


def test_the_cpu_of_a_window_is_between_its_samples() -> None:
    rows = [cpu("a", at, value) for at, value in ((0, 100.0), (5, 101.0), (10, 101.5), (15, 103.0), (20, 500.0))]
    rows += [cpu("one-sample", 10, 1.0), cpu("restarted", 5, 90.0), cpu("restarted", 15, 1.0)]
    frame = conform("api_server", rows)
    assert cores_used(frame, START + timedelta(seconds=4), START + timedelta(seconds=16)) == {"a": pytest.approx(0.2)}
    assert cores_used(conform("api_server", []), START, START + timedelta(seconds=9)) == {}


def test_a_clients_rates_begin_with_its_first_view() -> None:
    measured = Followed(
        mode=FollowMode.POLL,
        objects=10,
        began_at=START,
        synced_at=START + timedelta(seconds=10),
        ended_at=START + timedelta(seconds=40),
        to_sync=Traffic(lists=1, bytes=3_000_000),
        to_follow=Traffic(lists=3, bytes=9_000_000, cpu_seconds=1.5, failed=1),
        writes=4,
        failed_writes=0,
        lags=(0.5, 1.0, 4.0),
        unseen=1,
    )
    found = {figure.name.removeprefix("following client: "): figure.value for figure in _client(measured)}
    assert found == {
        "bytes of its first view": 3.0,
        "requests per minute": 6.0,
        "LISTs per minute": 6.0,
        "bytes received per second": 300.0,
        "CPU": 5.0,
        "failed requests": 1.0,
        "from a change to its sight, median": 1.0,
        "from a change to its sight, 99th percentile": 4.0,
        "changes never seen": 1.0,
    }
