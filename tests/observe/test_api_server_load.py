"""The logs of load and API canary, read into the history: once each, and nothing that is not a note."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from gameday.agent.task import ApiCanaryNote
from gameday.api_clients.notes import RequestsNote
from gameday.cluster.kubernetes import Kubernetes
from gameday.history.events import ApiCanarySampled, LoadLogged
from gameday.observe.api_server_load import nominal_seats, note_canary_samples, note_load
from gameday.values.api_requests import ApiCanarySample, ApiRequest

START = datetime(2026, 3, 3, tzinfo=UTC)


class FakeRun:
    """A run with a pod's log, and a history of what was noted."""

    def __init__(self, log: str = "") -> None:
        self.log = log
        self.noted: list[Any] = []
        self.kubernetes = SimpleNamespace(pod_log=lambda _: self.log)

    def note(self, event: Any) -> None:
        self.noted.append(event)

    def history(self) -> Any:
        return SimpleNamespace(of=lambda kind: [one for one in self.noted if isinstance(one, kind)])


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


def test_each_sample_is_noted_once() -> None:
    run: Any = FakeRun(_canary_line(1, 2))
    note_canary_samples(run, "client-1", "pod")
    note_canary_samples(run, "client-1", "pod")
    run.log += "\n" + _canary_line(3)
    note_canary_samples(run, "client-1", "pod")
    counts = [len(event.samples) for event in run.history().of(ApiCanarySampled)]
    assert counts == [2, 1]


def test_samples_beyond_the_first_mib_of_the_log_are_read() -> None:
    """The API canary writes a MiB in some seventeen minutes."""
    run: Any = FakeRun("\n".join(_canary_line(*(second + part / 8 for part in range(8))) for second in range(1500)))
    assert len(run.log) > 1 << 20

    def read(_name: str, _namespace: str, *, limit_bytes: int, **_: object) -> SimpleNamespace:
        return SimpleNamespace(data=run.log.encode()[:limit_bytes])

    adapter: Any = SimpleNamespace(
        core=SimpleNamespace(read_namespaced_pod_log=read),
        profile=SimpleNamespace(namespace="gameday"),
        explained=lambda _: nullcontext(),
    )
    run.kubernetes = SimpleNamespace(pod_log=lambda name: Kubernetes.pod_log(adapter, name))
    note_canary_samples(run, "client-1", "pod")
    assert run.history().of(ApiCanarySampled)[0].samples[-1].sent_at == START + timedelta(seconds=1499 + 7 / 8)


def test_the_loads_log_is_noted_once_with_everything_in_it() -> None:
    run: Any = FakeRun("\n".join(map(_load_line, range(3))))
    note_load(run, "client-1", "pod")
    note_load(run, "client-1", "pod")
    (logged,) = run.history().of(LoadLogged)
    assert [request.client for request in logged.requests] == [0, 1, 2]


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
def test_lines_that_are_no_notes_are_left_out(hostile: str) -> None:
    run: Any = FakeRun(f"{hostile}\n{_canary_line(1)}\n{_load_line(0)}\n{hostile}")
    note_canary_samples(run, "client-1", "pod")
    note_load(run, "client-1", "pod")
    (sampled,), (logged,) = run.history().of(ApiCanarySampled), run.history().of(LoadLogged)
    assert (len(sampled.samples), len(logged.requests)) == (1, 1)


def test_a_pod_without_a_log_gives_no_samples() -> None:
    run: Any = FakeRun()
    note_canary_samples(run, "client-1", "pod")
    assert run.noted == []


def test_seats_are_by_server_and_level() -> None:
    def sample(server: str, level: str, value: float) -> Any:
        return SimpleNamespace(labels={"instance": server, "priority_level": level}, value=value)

    samples = [sample("a", "x", 2.0), sample("a", "y", 5.0), sample("b", "x", 3.0)]
    run: Any = SimpleNamespace(servers=SimpleNamespace(prometheus=SimpleNamespace(query=lambda _: samples)))
    assert nominal_seats(run) == {"a": {"x": 2, "y": 5}, "b": {"x": 3}}
