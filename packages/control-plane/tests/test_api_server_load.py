"""The logs of load and API canary, read into the history: once each, and nothing that is not a note."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gameday.run.run import Run
from gameday_control_plane.api_clients.notes import RequestsNote
from gameday_control_plane.events import ApiCanarySampled, LoadLogged
from gameday_control_plane.observe import nominal_seats, note_canary_samples, note_load
from gameday_control_plane.tasks import ApiCanaryNote
from gameday_control_plane.values.api_requests import ApiCanarySample, ApiRequest
from tests.support.runs import quick_plan
from tests.support.scripted.api_server import NAMESPACE
from tests.support.scripted.cluster import ScriptedCluster
from tests.support.scripted.script import Script

START = datetime(2026, 3, 3, tzinfo=UTC)


class Logged:
    """A run on a cluster with one pod, and what that pod prints."""

    def __init__(self, cluster: ScriptedCluster, run: Run) -> None:
        self._cluster = cluster
        self.run = run

    def prints(self, *lines: str) -> None:
        self._cluster.print("pod", *lines)


@pytest.fixture
def logged(tmp_path: Path) -> Iterator[Logged]:
    cluster = ScriptedCluster(Script(), nodes=1)
    cluster.add_pod("pod", node="gpu-node-1", namespace=NAMESPACE)
    with cluster.run(quick_plan(), tmp_path) as run:
        yield Logged(cluster, run)


def _canary_line(*seconds: float) -> str:
    samples = [
        ApiCanarySample(kind="get", sent_at=START + timedelta(seconds=one), seconds=0.1, status=200) for one in seconds
    ]
    return ApiCanaryNote(samples=tuple(samples)).model_dump_json()


def _load_line(client: int) -> str:
    request = ApiRequest(
        client=client, round=0, attempt=1, sent_at=START, start=0, first_byte=1, end=2, status=200, bytes=1
    )
    return RequestsNote(requests=(request,)).model_dump_json()


def test_each_sample_is_noted_once(logged: Logged) -> None:
    logged.prints(_canary_line(1, 2))
    note_canary_samples(logged.run, "client-1", "pod")
    note_canary_samples(logged.run, "client-1", "pod")
    logged.prints(_canary_line(3))
    note_canary_samples(logged.run, "client-1", "pod")
    counts = [len(event.samples) for event in logged.run.history().of(ApiCanarySampled)]
    assert counts == [2, 1]


def test_samples_beyond_the_first_mib_of_the_log_are_read(logged: Logged) -> None:
    """The API canary writes a MiB in some seventeen minutes."""
    lines = [_canary_line(*(second + part / 8 for part in range(8))) for second in range(1500)]
    assert sum(map(len, lines)) > 1 << 20
    logged.prints(*lines)
    note_canary_samples(logged.run, "client-1", "pod")
    (sampled,) = logged.run.history().of(ApiCanarySampled)
    assert sampled.samples[-1].sent_at == START + timedelta(seconds=1499 + 7 / 8)


def test_the_loads_log_is_noted_once_with_everything_in_it(logged: Logged) -> None:
    logged.prints(*map(_load_line, range(3)))
    note_load(logged.run, "client-1", "pod")
    note_load(logged.run, "client-1", "pod")
    (load,) = logged.run.history().of(LoadLogged)
    assert [request.client for request in load.requests] == [0, 1, 2]


@pytest.mark.parametrize(
    "hostile",
    [
        "not JSON",
        "{" * 10_000,
        '{"note":"api-canary","samples":[{"kind":"rm -rf"}]}',
        '{"note":"requests","requests":[{"client":"<script>"}]}',
        _canary_line(1).replace('"note"', '"other"'),
        "\x00\x1b[31m\u2028",
    ],
)
def test_lines_that_are_no_notes_are_left_out(hostile: str, logged: Logged) -> None:
    logged.prints(hostile, _canary_line(1), _load_line(0), hostile)
    note_canary_samples(logged.run, "client-1", "pod")
    note_load(logged.run, "client-1", "pod")
    (sampled,), (load,) = logged.run.history().of(ApiCanarySampled), logged.run.history().of(LoadLogged)
    assert (len(sampled.samples), len(load.requests)) == (1, 1)


def test_a_pod_without_a_log_gives_no_samples(logged: Logged) -> None:
    note_canary_samples(logged.run, "client-1", "pod")
    assert logged.run.history().records == ()


def test_seats_are_by_server_and_level() -> None:
    def sample(server: str, level: str, value: float) -> Any:
        return SimpleNamespace(labels={"instance": server, "priority_level": level}, value=value)

    samples = [sample("a", "x", 2.0), sample("a", "y", 5.0), sample("b", "x", 3.0)]
    run: Any = SimpleNamespace(servers=SimpleNamespace(prometheus=SimpleNamespace(query=lambda _: samples)))
    assert nominal_seats(run) == {"a": {"x": 2, "y": 5}, "b": {"x": 3}}
