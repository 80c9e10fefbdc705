"""The API canary asks at its beat, notes what came, and leaves no Lease behind."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from gameday.agent.context import Context, Ending
from gameday.agent.task import AgentResult, notes_in
from gameday.errors import HostError
from gameday.values.results import Cleanliness
from gameday_control_plane import agent as api_canary_module
from gameday_control_plane.agent import api_canary
from gameday_control_plane.tasks import ApiCanaryNote, ApiCanaryTask
from gameday_control_plane.values.api_requests import ApiCanarySample
from tests.control_plane.api_clients.server import Play, Server, hang_up, ok, refuse, serving
from tests.host.fake import FakeHost
from tests.kubesim.processes import eventually

TASK = ApiCanaryTask(run_id="r1", node="api-client-1", duration_s=600)
LEASE = ok(json.dumps({"metadata": {"resourceVersion": "7"}}).encode())
LEASES = "/apis/coordination.k8s.io/v1/namespaces/gameday-load/leases"


def sent(samples: list[ApiCanarySample]) -> list[ApiCanarySample]:
    """Return the samples of requests; on a busy machine beats are missed behind fast ones, too."""
    return [one for one in samples if not one.missed]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path, LEASE) as server:
        yield server


class Sung:
    """A canary in a thread of its own."""

    def __init__(self, server: Server, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        host = FakeHost()
        host.api = server.reached_as
        self.context = Context(host, Ending(), folder, folder / "termination-log")
        self.results: list[AgentResult] = []
        self._capsys = capsys
        self._log = ""
        self._thread = threading.Thread(target=lambda: self.results.append(api_canary(TASK, self.context)))
        self._thread.start()

    def samples(self) -> list[ApiCanarySample]:
        self._log += self._capsys.readouterr().out
        return [one for note in notes_in(self._log, ApiCanaryNote) for one in note.samples]

    def until(self, condition: Callable[[list[ApiCanarySample]], object], what: str) -> None:
        eventually(lambda: condition(self.samples()), what)

    def end(self) -> AgentResult:
        self.context.ending.by_signal()
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self.results[0]


@pytest.fixture
def sing(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Sung]]:
    for name in ("BEAT_S", "_NOTE_EVERY_S"):
        monkeypatch.setattr(api_canary_module, name, 0.1)
    sung: list[Sung] = []

    def begin() -> Sung:
        sung.append(Sung(server, tmp_path, capsys))
        return sung[-1]

    yield begin
    server.released.set()
    server.play(LEASE)
    for one in sung:
        one.context.ending.by_signal()
        one._thread.join(30)


def test_each_beat_asks_four_things_one_after_the_other(
    sing: Callable[[], Sung], server: Server, tmp_path: Path
) -> None:
    canary = sing()
    canary.until(lambda samples: len(sent(samples)) >= 8, "two rounds")
    assert (tmp_path / "ready").exists()
    result = canary.end()
    samples = sent(canary.samples())
    assert [one.kind for one in samples[:8]] == ["readyz", "get", "put", "list"] * 2
    assert {(one.status, one.error, one.missed) for one in samples[:8]} == {(200, "", False)}
    assert (result.ok, result.cleanliness, result.ended_by) == (True, Cleanliness.CLEAN, "sigterm")
    methods = [(method, path) for method, path, _ in server.asked]
    assert methods[0] == ("POST", LEASES)
    assert methods[-1] == ("DELETE", f"{LEASES}/api-canary-r1")
    made, renewed = (json.loads(body) for body in (server.bodies[0], server.bodies[4 + 1]))
    assert made["metadata"]["labels"] == {"gameday.dev/run": "r1"}
    assert renewed["metadata"]["resourceVersion"] == "7"


def test_failures_are_noted_once_and_the_canary_goes_on(sing: Callable[[], Sung], server: Server) -> None:
    canary = sing()
    canary.until(lambda samples: samples, "the first round")
    server.play(hang_up)
    canary.until(lambda samples: {one.kind for one in samples if one.error == "cut"} >= {"readyz", "put"}, "cuts")
    server.play(refuse(429, Retry_After="1"))
    canary.until(lambda samples: any(one.status == 429 for one in samples), "refusals")
    server.play(LEASE)
    canary.until(lambda samples: [one.status for one in sent(samples)[-4:]] == [200] * 4, "good answers again")
    assert canary.end().ok
    samples = canary.samples()
    assert len(sent(samples)) <= len(server.asked), "each request is sent once"


def test_beats_missed_behind_a_slow_request_count_as_if_they_had_waited(
    sing: Callable[[], Sung], server: Server
) -> None:
    canary = sing()
    canary.until(lambda samples: samples, "the first round")
    missed_its_beats = threading.Event()

    def slow(handler: BaseHTTPRequestHandler) -> None:
        missed_its_beats.wait(0.35)  # three beats and a little
        LEASE(handler)

    server.play(slow, LEASE)
    canary.until(lambda samples: any(one.seconds >= 0.35 for one in sent(samples)), "a slow answer")
    canary.end()
    samples = canary.samples()
    waited_for = max(sent(samples), key=lambda one: one.seconds)
    ended_at = waited_for.sent_at + timedelta(seconds=waited_for.seconds)
    missed = [one for one in samples if one.missed and waited_for.sent_at <= one.sent_at < ended_at]
    assert {one.kind for one in missed} == {waited_for.kind}
    ends = {round((one.sent_at - waited_for.sent_at).total_seconds() + one.seconds, 3) for one in missed}
    assert all(abs(end - waited_for.seconds) < 0.002 for end in ends), "each waits until that one's end"
    assert all(one.seconds < waited_for.seconds for one in missed)
    assert len(missed) >= 3


def test_a_request_that_takes_too_long_is_given_up(
    sing: Callable[[], Sung], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_canary_module, "TIMEOUT_S", 0.1)
    canary = sing()
    canary.until(lambda samples: samples, "the first round")
    server.play(server.hold)
    canary.until(lambda samples: any(one.error == "timeout" for one in samples), "a time-out")


def test_an_end_in_mid_request_does_not_wait_for_it(sing: Callable[[], Sung], server: Server) -> None:
    canary = sing()
    canary.until(lambda samples: samples, "the first round")
    asked = len(server.asked)
    server.play(server.hold, LEASE)
    eventually(lambda: len(server.asked) > asked, "a request that is held")
    assert canary.end().cleanliness is Cleanliness.CLEAN
    assert canary.samples()[-1].error == "ended"


def test_a_lease_that_cannot_be_deleted_is_said(
    sing: Callable[[], Sung], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_canary_module, "_CLEAN_UP_WITHIN_S", 0.1)
    canary = sing()
    canary.until(lambda samples: samples, "the first round")
    server.play(refuse(503))
    result = canary.end()
    assert (result.ok, result.cleanliness) == (False, Cleanliness.DIRTY)
    assert "Lease is left in namespace gameday-load" in result.error


def test_a_cluster_without_its_parts_is_an_error_that_says_which(tmp_path: Path) -> None:
    plays: list[Play] = [LEASE, refuse(404), LEASE]
    with serving(tmp_path, *plays) as server:
        host = FakeHost()
        host.api = server.reached_as
        with pytest.raises(HostError, match="configmaps/gameday-api-canary"):
            api_canary(TASK, Context(host, Ending(), tmp_path, tmp_path / "log"))
        assert server.asked[-1][0] == "DELETE", "nothing is left"
