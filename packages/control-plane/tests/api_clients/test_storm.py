"""Client processes begin together, tell what they did, and end with the agent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gameday.errors import HostError
from gameday_control_plane.api_clients.__main__ import start_after_s
from gameday_control_plane.api_clients.lists import Form, Read
from gameday_control_plane.api_clients.notes import RequestsNote, request_notes
from gameday_control_plane.api_clients.order import ClientsLine, ClientsOrder, ListOrder
from gameday_control_plane.api_clients.storm import CLIENTS_IN_A_PROCESS, Storm, wait_until_sent
from gameday_control_plane.values.api_requests import ApiRequest
from tests.control_plane.api_clients.server import Server, ok, serving
from tests.kubesim.processes import eventually


def order(server: Server, rounds: int = 1) -> ListOrder:
    return ListOrder(server=server.reached_as, resource="secrets", form=Form.JSON, read=Read.LATEST, rounds=rounds)


@pytest.mark.slow
def test_clients_of_several_processes_run_to_their_end(tmp_path: Path) -> None:
    clients = CLIENTS_IN_A_PROCESS + 1
    with serving(tmp_path, ok(b"x" * 1000)) as server:
        storm = Storm(order(server, rounds=2), clients)
        try:
            assert server.asked == [], "before they may"
            storm.begin()
            assert wait_until_sent(storm, 60)
            eventually(lambda: storm.is_over, "the storm is over")
        finally:
            storm.end()
    assert len(storm.take()) == 2 * clients
    assert storm.take() == []
    assert {(one.client, one.round) for one in storm.requests} == {(c, r) for c in range(clients) for r in (0, 1)}
    assert all(one.is_served and one.bytes == 1000 for one in storm.requests)
    assert storm.failed == 0
    assert storm.cost.cpu_seconds > 0
    assert storm.cost.rss_bytes > 2 * 10_000_000


@pytest.mark.slow
def test_starts_are_spread_at_random_and_alike_in_every_run(tmp_path: Path) -> None:
    with serving(tmp_path, ok(b"x")) as server:
        storm = Storm(order(server).model_copy(update={"starts_over_s": 0.6}), 3)
        try:
            storm.begin()
            eventually(lambda: storm.is_over, "the storm is over")
        finally:
            storm.end()
    starts = {one.client: one.start for one in storm.requests}
    planned = {client: start_after_s(client, 0.6) for client in range(3)}
    assert max(starts, key=lambda client: starts[client]) == max(planned, key=lambda client: planned[client])
    assert max(starts.values()) - min(starts.values()) >= 0.9 * (max(planned.values()) - min(planned.values())) > 0


@pytest.mark.slow
def test_an_end_in_mid_request_is_logged_by_every_client(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.play(server.hold)
        storm = Storm(order(server), 3)
        try:
            storm.begin()
            assert wait_until_sent(storm, 60)
        finally:
            storm.end()
            storm.end()
    assert [one.error for one in storm.requests] == ["ended"] * 3
    assert storm.failed == 0


@pytest.mark.slow
def test_a_process_that_dies_is_counted(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.play(server.hold)
        storm = Storm(order(server), 1)
        try:
            storm.begin()
            assert wait_until_sent(storm, 60)
            os.kill(storm._processes[0]._process.pid, signal.SIGKILL)
            eventually(lambda: storm.is_over, "the storm is over")
            assert storm.failed == 1
        finally:
            storm.end()


@pytest.mark.slow
def test_a_process_that_cannot_begin_is_an_error(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.reached_as.ca_file.write_text("no certificate")
        with pytest.raises(HostError, match="did not start"):
            Storm(order(server), 1)


def test_clients_end_when_their_agent_dies(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.play(server.hold)
        process = subprocess.Popen(
            [sys.executable, "-m", "gameday_control_plane.api_clients"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin and process.stdout
        try:
            process.stdin.write(ClientsOrder(lists=order(server), clients=(0,)).model_dump_json().encode() + b"\ngo\n")
            process.stdin.flush()
            assert ClientsLine.model_validate_json(process.stdout.readline()).ready
            assert ClientsLine.model_validate_json(process.stdout.readline()).sent == 0
            process.stdout.close()
            process.stdin.close()
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()


def test_notes_hold_every_request_once_and_are_short() -> None:
    uid = "7969e436-08af-4658-b659-31f39c4c3769"
    one = ApiRequest(
        client=199,
        round=999,
        attempt=10,
        sent_at=datetime(2026, 1, 2, 12, 0, 0, 123456, tzinfo=UTC),
        start=1234567.123456,
        first_byte=1234567.123456,
        end=1234567.123456,
        status=200,
        bytes=1_200_000_000,
        flow_schema=uid,
        priority_level=uid,
    )
    requests = [one.model_copy(update={"client": client}) for client in range(120)]
    notes = list(request_notes(requests))
    assert [one for note in notes for one in note.requests] == requests
    assert max(len(note.model_dump_json()) for note in notes) < 20_000
    assert RequestsNote.model_validate_json(notes[0].model_dump_json()) == notes[0]
