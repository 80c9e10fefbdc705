"""A simulated client sends each request once, writes down what came, and backs off only when asked to."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from gameday.api_clients.connection import tls_context
from gameday_control_plane.api_clients import client as client_module
from gameday_control_plane.api_clients.client import MOST_ATTEMPTS, StormClient, asked_to_wait
from gameday_control_plane.api_clients.lists import Form, Read, list_request
from gameday_control_plane.values.api_requests import ApiRequest
from tests.control_plane.api_clients.server import Play, Server, cut, hang_up, ok, refuse, serving
from tests.support.ports import free_ports

BOOKMARK = b'{"type":"BOOKMARK","object":{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}}\n'


def new_client(server: Server, log: list[ApiRequest], read: Read = Read.LATEST) -> StormClient:
    request, tls = list_request("secrets", Form.JSON, read, "7"), tls_context(server.reached_as)
    headers = (("Impersonate-User", "x"),)
    return StormClient(3, server.reached_as, tls, request, headers, lambda _: None, log.append)


def run(server: Server, rounds: int = 1, read: Read = Read.LATEST) -> list[ApiRequest]:
    log: list[ApiRequest] = []
    new_client(server, log, read).run(rounds)
    return log


def test_what_came_is_written_down(tmp_path: Path) -> None:
    uids = {"X-Kubernetes-PF-FlowSchema-UID": "fs", "X-Kubernetes-PF-PriorityLevel-UID": "pl"}
    with serving(tmp_path, ok(b"x" * 700_000, **uids)) as server:
        first, second = run(server, rounds=2)
    assert (first.client, first.round, first.attempt, second.round) == (3, 0, 1, 1)
    assert (first.status, first.bytes, first.error, first.is_served) == (200, 700_000, "", True)
    assert (first.flow_schema, first.priority_level) == ("fs", "pl")
    assert first.first_byte is not None
    assert first.start <= first.first_byte <= first.end <= second.start
    _, path, headers = server.asked[0]
    assert path == "/api/v1/namespaces/gameday-load/secrets"
    assert headers["Accept-Encoding"] == "identity"
    assert headers["Authorization"] == "Bearer first"
    assert headers["Impersonate-User"] == "x"


def test_a_renewed_token_is_used_for_the_next_request(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        run(server)
        server.reached_as.token_file.write_text("second")
        run(server)
        assert [headers["Authorization"] for _, _, headers in server.asked] == ["Bearer first", "Bearer second"]


def test_a_refusal_that_says_when_is_asked_again_openly(tmp_path: Path) -> None:
    plays = (refuse(429, Retry_After="0"), refuse(503, Retry_After="0"), ok())
    with serving(tmp_path, *plays) as server:
        log = run(server)
    assert [(one.attempt, one.status, one.retry_after_s) for one in log] == [(1, 429, 0), (2, 503, 0), (3, 200, None)]


def test_a_server_that_always_refuses_is_given_up(tmp_path: Path) -> None:
    with serving(tmp_path, refuse(429, Retry_After="0")) as server:
        log = run(server)
    assert [one.attempt for one in log] == list(range(1, MOST_ATTEMPTS + 1))


@pytest.mark.parametrize(
    ("play", "status", "error"),
    [
        (refuse(500), 500, ""),
        (refuse(429), 429, ""),
        (refuse(429, Retry_After="soon"), 429, ""),
        (refuse(403, Retry_After="0"), 403, ""),
        (hang_up, 0, "cut"),
        (cut(100, b"half"), 200, "cut"),
    ],
)
def test_any_other_failure_is_sent_once_and_ends_the_round(tmp_path: Path, play: Play, status: int, error: str) -> None:
    with serving(tmp_path, play) as server:
        log = run(server)
        assert [(one.status, one.error) for one in log] == [(status, error)]
        assert not log[0].is_served
        assert len(server.asked) == 1, "a hidden retry"


def test_a_client_goes_on_over_a_new_connection_after_a_cut(tmp_path: Path) -> None:
    with serving(tmp_path, cut(100, b"half"), ok(b"whole")) as server:
        assert [(one.error, one.bytes) for one in run(server, rounds=2)] == [("cut", 4), ("", 5)]


def test_nobody_listens(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        (port,) = free_ports(1)
        server.reached_as = server.reached_as.model_copy(update={"url": f"https://127.0.0.1:{port}"})
        (one,) = run(server)
    assert (one.status, one.first_byte, one.error) == (0, None, "refused")


def test_a_server_that_falls_silent_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "TIMEOUT_S", 1.5)  # a busy machine needs time for the handshake
    with serving(tmp_path) as server:
        server.play(server.hold)
        (one,) = run(server)
    assert (one.status, one.error) == (200, "timeout")


def test_an_end_in_mid_answer_is_written_down_as_such(tmp_path: Path) -> None:
    log: list[ApiRequest] = []
    with serving(tmp_path) as server:
        server.play(server.hold)
        client = new_client(server, log)
        begun = threading.Event()
        client._sent = lambda _: begun.set()
        thread = threading.Thread(target=client.run, args=(5,))
        thread.start()
        assert begun.wait(20)
        client.end()
        thread.join(20)
        assert not thread.is_alive()
    assert [one.error for one in log] == ["ended"]


def test_an_end_in_a_pause_does_not_wait_for_it(tmp_path: Path) -> None:
    log: list[ApiRequest] = []
    logged = threading.Event()
    with serving(tmp_path, refuse(429, Retry_After="32")) as server:
        client = new_client(server, log)
        client._log = lambda one: (log.append(one), logged.set())
        thread = threading.Thread(target=client.run, args=(1,))
        thread.start()
        assert logged.wait(20)
        client.end()
        thread.join(20)
        assert not thread.is_alive()
    assert len(log) == 1


def test_a_watch_list_ends_after_its_initial_events(tmp_path: Path) -> None:
    events = b'{"type":"ADDED"}\n' * 5000
    with serving(tmp_path, ok(events + BOOKMARK)) as server:
        (one,) = run(server, read=Read.WATCH_LIST)
        assert "sendInitialEvents=true" in server.asked[0][1]
    assert one.is_served
    assert one.bytes >= len(events)


def test_a_watch_that_ends_before_its_initial_events_is_cut(tmp_path: Path) -> None:
    with serving(tmp_path, ok(b'{"type":"ADDED"}\n')) as server:
        (one,) = run(server, read=Read.WATCH_LIST)
    assert (one.status, one.error) == (200, "cut")


def test_no_server_may_ask_for_a_longer_pause_than_flow_control_does(tmp_path: Path) -> None:
    with serving(tmp_path, refuse(429), ok()) as server:
        (one,) = run(server)
    assert asked_to_wait(one) is None
    assert asked_to_wait(one.model_copy(update={"retry_after_s": 86_400.0})) == 32.0


@pytest.mark.parametrize(
    ("form", "read", "accept", "query"),
    [
        (Form.JSON, Read.ANY, "application/json", {"resourceVersion": "0"}),
        (Form.YAML, Read.EXACT, "application/yaml", {"resourceVersion": "7", "resourceVersionMatch": "Exact"}),
        (Form.TABLE, Read.LATEST, "application/json;as=Table;g=meta.k8s.io;v=v1", {"includeObject": "Object"}),
    ],
)
def test_forms_and_reads_are_the_wires_own(form: Form, read: Read, accept: str, query: dict[str, str]) -> None:
    found = list_request("secrets", form, read, "7")
    assert (found.accept, found.query) == (accept, query)


def test_metadata_comes_one_by_one_in_a_watch() -> None:
    listed = list_request("secrets", Form.METADATA, Read.LATEST, "")
    watched = list_request("secrets", Form.METADATA, Read.WATCH_LIST, "")
    assert "PartialObjectMetadataList" in listed.accept
    assert "as=PartialObjectMetadata;" in watched.accept
