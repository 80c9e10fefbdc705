"""The time from a write to its sight."""

from __future__ import annotations

import pytest

from gameday_control_plane.values.api_loads import Sighting, Traffic, Write, lags


def write(version: int, at: float, name: str = "a") -> Write:
    return Write(name=name, version=version, at=at)


def seen(version: int, at: float, name: str = "a") -> Sighting:
    return Sighting(name=name, version=version, at=at)


@pytest.mark.parametrize(
    ("writes", "sightings", "expected"),
    [
        ([write(5, 10.0)], [seen(5, 10.5)], [0.5]),
        # A watch may be quicker than the writer's own answer.
        ([write(5, 10.0)], [seen(5, 9.9)], [0.0]),
        # A poll shows the last of several changes.
        ([write(5, 10.0), write(7, 11.0)], [seen(7, 12.0)], [2.0, 1.0]),
        # The first sight counts, in whatever order they are told.
        ([write(5, 10.0)], [seen(9, 13.0), seen(5, 11.0)], [1.0]),
        ([write(5, 10.0)], [seen(4, 10.5), seen(5, 10.5, "b")], [None]),
        ([], [seen(4, 10.5)], []),
    ],
)
def test_a_write_is_seen_by_its_version_or_a_later_one(
    writes: list[Write], sightings: list[Sighting], expected: list[float | None]
) -> None:
    assert lags(writes, sightings) == expected


def test_traffic_since_an_earlier_moment() -> None:
    whole = Traffic(lists=3, watches=1, gets=2, failed=1, bytes=100, cpu_seconds=1.5)
    assert whole - Traffic(lists=1, bytes=60, cpu_seconds=0.25) == Traffic(
        lists=2, watches=1, gets=2, failed=1, bytes=40, cpu_seconds=1.25
    )
    assert whole.requests == 6
