"""An API server restarted under its clients, against the embedded one: connected, restarted, measured, taken out."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ValidationError

from gameday.errors import HostError
from gameday.host.base import ApiServer, ProgramResult
from gameday_control_plane.api_clients.notes import MeasuredNote
from gameday_control_plane.faults.api_server_restarted import ApiServerRestartedFault, ApiServerRestartedParameters
from gameday_control_plane.values.api_loads import Reconnected
from tests.host.fake import FakeHost
from tests.kubesim.processes import ApiServer as Program

SMALL: dict[str, Any] = {
    "clients": 3,
    "objects": 5,
    "object_size": 10,
    "interval": "100ms",
    "begins_after": "0s",
    "watched_for": "1s",
    "hold": "2m",
}


class Lab:
    """A lab that says that it restarts its API server; `pid` grows with each restart, if it does."""

    def __init__(self) -> None:
        self.pid = 47
        self.restarts = True

    def __call__(self, argv: Sequence[str]) -> ProgramResult:
        self.pid += argv[1] == "restart" and self.restarts
        state = json.dumps({"pid": self.pid, "paused": False})
        return ProgramResult(argv=tuple(argv), exit_status=0, stdout=state, stderr="")


@pytest.fixture
def lab() -> Lab:
    return Lab()


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    folder = tmp_path_factory.mktemp("api")
    running = Program(folder / "server")
    try:
        with running.http() as http:
            http.post("/api/v1/namespaces", json={"metadata": {"name": "gameday-load"}}).raise_for_status()
        (folder / "token").write_text(running.token())
        yield ApiServer(url=running.url, ca_file=Path(running.ready["ca"]), token_file=folder / "token")
    finally:
        running.end()


@pytest.fixture
def host(api: ApiServer, lab: Lab) -> FakeHost:
    host = FakeHost()
    host.api, host.programs = api, lab
    return host


@pytest.mark.slow
@pytest.mark.parametrize("keep_up", ["watch", "list"])
def test_its_clients_are_connected_first_and_followed_after_it(
    host: FakeHost, keep_up: Literal["watch", "list"]
) -> None:
    fault, parameters = ApiServerRestartedFault(), ApiServerRestartedParameters(**SMALL | {"keep_up": keep_up})
    told: list[BaseModel] = []
    fault.prior_state(parameters, 0, host)
    try:
        fault.inject(parameters, 0, host)
        assert not fault.verify_undone(parameters, 0, host, {})
        lines = fault.hold_and_tell(parameters, 0, host, threading.Event(), told.append)
    finally:
        fault.undo(parameters, 0, host, {})
    assert fault.verify_undone(parameters, 0, host, {})
    assert lines[0] == "kube-apiserver was restarted: process 47, then 48"
    (note,) = told
    assert isinstance(note, MeasuredNote) and isinstance(note.measured, Reconnected)
    measured = note.measured
    assert measured.back_after_s == (0.0, 0.0, 0.0), "this server was not really restarted"
    assert all(count > 2 for count in measured.lists) if keep_up == "list" else measured.lists == (0, 0, 0)
    assert measured.cpu_seconds > 0


@pytest.mark.slow
def test_a_server_that_keeps_its_process_was_not_restarted(host: FakeHost, lab: Lab) -> None:
    fault, parameters = ApiServerRestartedFault(), ApiServerRestartedParameters(**SMALL)
    lab.restarts = False
    try:
        fault.inject(parameters, 0, host)
        with pytest.raises(HostError, match="was not started again"):
            fault.hold_and_tell(parameters, 0, host, threading.Event(), print)
    finally:
        fault.undo(parameters, 0, host, {})


def test_a_hold_that_would_cut_it_off_is_refused() -> None:
    with pytest.raises(ValidationError, match="hold it for as long"):
        ApiServerRestartedParameters(**SMALL | {"watched_for": "90s"})
