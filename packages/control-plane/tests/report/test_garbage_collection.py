"""The collector's figures: rates over a restart, medians over servers, and nothing where nothing was scraped."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import pandas as pd
import pytest

from gameday.history.frames import SCHEMAS, Frames, conform
from gameday_control_plane.checks.api_canary import Window, fault_window
from gameday_control_plane.figures.garbage_collection import figures
from tests.report.run_builder import NODE, PLAN, history_of, passing

HISTORY = history_of(passing())
Sample = tuple[str, str, float, float]
"""A server, a metric, seconds after the fault went in, and a value."""


def window() -> Window:
    found = fault_window(HISTORY, NODE)
    assert found
    return found


def frames(samples: Iterable[Sample]) -> Frames:
    begin = window().begin
    rows = [
        {"server": server, "metric": metric, "time": pd.Timestamp(begin + timedelta(seconds=at)), "value": value}
        for server, metric, at, value in samples
    ]
    columns = {name: [row.get(name, "") for row in rows] for name in SCHEMAS["api_server"]}
    return Frames(api_server=conform("api_server", pd.DataFrame(columns)))


def found(samples: Iterable[Sample]) -> dict[str, float]:
    return {one.name.removeprefix("API server: "): one.value for one in figures(PLAN, HISTORY, frames(samples))}


def counter(server: str, metric: str, *values: float) -> list[Sample]:
    return [(server, metric, 0.1 * number, value) for number, value in enumerate(values)]


CYCLES = "go_gc_cycles_total_gc_cycles_total"


def test_collections_are_counted_over_a_restart_and_not_before_the_fault() -> None:
    samples = [("a", CYCLES, -5.0, 0.0), *counter("a", CYCLES, 10, 12, 1, 3)]
    assert found(samples)["collections in a second"] == pytest.approx(5 / 0.3)


def test_of_several_servers_the_median_is_given() -> None:
    samples = [one for server, step in (("a", 1), ("b", 2), ("c", 9)) for one in counter(server, CYCLES, 0, step)]
    assert found(samples)["collections in a second"] == pytest.approx(20)


def test_the_share_of_cpu_and_the_treatment_are_told() -> None:
    told = found(
        [
            *counter("a", CYCLES, 0, 1),
            *counter("a", "go_gc_heap_allocs_bytes_total", 2**30, 3 * 2**29),
            *counter("a", "go_cpu_classes_total_cpu_seconds_total", 10, 16),
            *counter("a", "go_cpu_classes_idle_cpu_seconds_total", 8, 12),
            *counter("a", "go_cpu_classes_gc_total_cpu_seconds_total", 1, 1.75),
            *counter("a", "go_cpu_classes_gc_mark_idle_cpu_seconds_total", 0.5, 0.75),
            *counter("a", "go_gc_gogc_percent", 50, 50),
            *counter("a", "go_gc_gomemlimit_bytes", 2.0**63, 2.0**63),
            *counter("a", "process_resident_memory_bytes", 2**28, 2**29),
        ]
    )
    assert told["collections for each GiB allocated"] == pytest.approx(2)
    assert told["share of CPU spent on collections"] == pytest.approx(25)
    assert (told["GOGC in force"], told["peak memory under load"]) == (50, 512)
    assert "GOMEMLIMIT in force" not in told, "none is set"
    limited = found([*counter("a", CYCLES, 0, 1), *counter("a", "go_gc_gomemlimit_bytes", 2**28, 2**28)])
    assert limited["GOMEMLIMIT in force"] == 256


def test_what_nobody_scraped_is_no_figure() -> None:
    assert found([]) == {}
    assert "live heap under load" not in found(counter("a", CYCLES, 0, 1))
