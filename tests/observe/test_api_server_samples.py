"""The frame `api_server`: a row per sample, with the labels that questions are asked by."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gameday.cluster.prometheus import Sample, Series
from gameday.history.frames import SCHEMAS, Frames, frame_of
from gameday.observe.api_server_metrics import EXECUTING_REQUESTS, REQUESTS, RESIDENT_MEMORY
from gameday.observe.api_server_samples import api_server_columns, read_api_server
from gameday.observe.samples import MOST_SAMPLES

END = datetime(2026, 11, 23, 12, tzinfo=UTC)
START = END - timedelta(minutes=5)
SCRAPED = {"job": "apiserver", "instance": "kube-apiserver-2"}


def series(name: str, *values: float, **labels: str) -> Series:
    points = tuple((START + timedelta(seconds=number), value) for number, value in enumerate(values))
    return Series(name, {**SCRAPED, **labels}, points)


MEMORY = series(RESIDENT_MEMORY.name, 5e8, 6e8)
EXECUTING = series(EXECUTING_REQUESTS.name, 2.0, priority_level="two", flow_schema="list-secrets")
LISTS = series(REQUESTS.name, 7.0, verb="LIST", group="", resource="secrets", scope="cluster", code="200")


class Prometheus:
    """A server that holds so many samples of whatever is asked first and next."""

    def __init__(self, *held: float) -> None:
        self.held = list(held)
        self.asked: list[tuple[str, str]] = []

    def query(self, promql: str, at: datetime | None = None) -> list[Sample]:
        value = 2.0 if promql.startswith("count(") else self.held.pop(0)
        return [Sample("", {}, END, value)]

    def stored_samples(self, selector: str, window: timedelta, end: datetime) -> list[Series]:
        self.asked.append(("stored", selector))
        return [MEMORY, EXECUTING]

    def query_range(self, selector: str, start: datetime, end: datetime, step: timedelta) -> list[Series]:
        self.asked.append(("range", selector))
        return [LISTS]


def test_a_row_has_its_server_its_metric_and_the_labels_that_the_metric_has() -> None:
    frame = frame_of("api_server", api_server_columns([MEMORY, EXECUTING, LISTS]))
    assert list(frame.columns) == list(SCHEMAS["api_server"])
    assert frame["server"].unique().tolist() == ["kube-apiserver-2"]
    (executing,) = frame[frame["metric"] == EXECUTING_REQUESTS.name].to_dict("records")
    assert (executing["priority_level"], executing["flow_schema"], executing["verb"]) == ("two", "list-secrets", "")
    (lists,) = frame[frame["metric"] == REQUESTS.name].to_dict("records")
    assert (lists["verb"], lists["resource"], lists["code"]) == ("LIST", "secrets", "200")
    assert lists["labels"] == "scope=cluster"
    memory = frame[frame["metric"] == RESIDENT_MEMORY.name]
    assert memory["value"].tolist() == [5e8, 6e8]
    assert memory["time"].is_monotonic_increasing


def test_no_value_is_no_row() -> None:
    assert api_server_columns([series(RESIDENT_MEMORY.name, math.nan, 1.0)])["value"] == [1.0]
    assert frame_of("api_server", api_server_columns([])).empty


def test_many_counters_cannot_thin_out_the_seats() -> None:
    prometheus: Any = Prometheus(1_000, MOST_SAMPLES * 10)
    found = read_api_server(prometheus, START, END)
    (how, seats), (how_counters, counters) = prometheus.asked
    assert (how, how_counters) == ("stored", "range")
    assert EXECUTING_REQUESTS.name in seats
    assert REQUESTS.name in counters
    assert 'job="apiserver"' in seats
    assert "_bucket" not in seats + counters
    assert found.step_s is not None
    assert len(found.rows["time"]) == 4


def test_the_frame_is_read_as_it_was_saved(tmp_path: Path) -> None:
    frame = frame_of("api_server", api_server_columns([MEMORY, EXECUTING, LISTS]))
    Frames(api_server=frame).save(tmp_path)
    assert Frames.load(tmp_path).api_server.equals(frame)


def test_a_run_of_before_has_an_empty_one(tmp_path: Path) -> None:
    Frames().save(tmp_path)
    (tmp_path / "api_server.parquet").unlink()
    assert Frames.load(tmp_path).api_server.empty
