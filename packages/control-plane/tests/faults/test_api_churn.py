"""API churn against the embedded API server: writes, watches and LISTs are logged, and taken out by their label."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from gameday.agent.task import notes_in
from gameday.errors import HostError
from gameday.host import memory
from gameday_control_plane.api_clients.notes import RequestsNote
from gameday_control_plane.faults.api_churn import ApiChurnFault, ApiChurnParameters
from tests.control_plane.faults.conftest import LOAD
from tests.host.fake import FakeHost
from tests.kubesim.processes import ApiServer as Program

SMALL: dict[str, Any] = {"objects": 6, "object_size": "1KB", "rate": 100, "watches": 3, "list_every": "100ms"}
CONFIG_MAPS = f"{LOAD}/configmaps"
LOADS = "gameday.dev/load=api-churn"


def left(server: Program) -> int:
    with server.http() as http:
        return len(http.get(CONFIG_MAPS, params={"labelSelector": LOADS}).raise_for_status().json()["items"])


def test_every_write_and_list_is_told_of_and_nothing_is_left(host: FakeHost, server: Program) -> None:
    fault, parameters = ApiChurnFault(), ApiChurnParameters.model_validate(SMALL)
    told, ended, served = list[BaseModel](), threading.Event(), Counter[str]()

    def hear(note: BaseModel) -> None:
        told.append(note)
        served.update(one.verb for one in note.requests if one.is_served)  # type: ignore[attr-defined]
        if all(served[verb] >= 2 for verb in ("create", "update", "delete", "list")):
            ended.set()

    fault.prior_state(parameters, 0, host)
    try:
        evidence = fault.inject(parameters, 0, host)
        lines = fault.hold_and_tell(parameters, 0, host, ended, hear)
    finally:
        for _ in range(2):
            fault.undo(parameters, 0, host, {})
    assert evidence.lines[-1] == "after: 3 watches are open, 100 writes per second go on"
    assert lines[0].endswith(", 0 failed") and lines[1].startswith("0 watches ended early")
    log = "\n".join(note.model_dump_json() for note in told)
    requests = [one for note in notes_in(log, RequestsNote) for one in note.requests]
    assert f"{len(requests)} requests: " in lines[0]
    assert {one.client for one in requests} == {0, 1}
    assert fault.verify_undone(parameters, 0, host, {}) and left(server) == 0


def test_another_process_undoes_by_the_label_alone(host: FakeHost, server: Program) -> None:
    killed, parameters = ApiChurnFault(), ApiChurnParameters.model_validate(SMALL)
    killed.inject(parameters, 0, host)
    try:
        with pytest.raises(HostError, match="gameday reap"):
            ApiChurnFault().prior_state(parameters, 0, host)
        killed.hold_and_tell(parameters, 0, host, _over(), print)
        another = ApiChurnFault()
        assert not another.verify_undone(parameters, 0, host, {})
        another.undo(parameters, 0, host, {})
        assert another.verify_undone(parameters, 0, host, {}) and left(server) == 0
    finally:
        killed.undo(parameters, 0, host, {})


@pytest.mark.slow
def test_a_host_short_of_memory_ends_the_load_by_itself(
    host: FakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault, parameters = ApiChurnFault(), ApiChurnParameters.model_validate(SMALL)
    fault.inject(parameters, 0, host)
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 100 kB\nMemAvailable: 14 kB\n")
    monkeypatch.setattr(memory, "MEMINFO", meminfo)
    with pytest.raises(HostError, match="less than 15% of this node's memory is free: the load ended"):
        fault.hold_and_tell(parameters, 0, host, threading.Event(), print)
    fault.undo(parameters, 0, host, {})
    with pytest.raises(HostError, match="only 14% of this node's memory is free"):
        fault.prior_state(parameters, 0, host)


def test_more_requests_than_a_pods_log_holds_are_refused() -> None:
    with pytest.raises(ValidationError, match="a lower rate, or a shorter hold"):
        ApiChurnParameters.model_validate({"rate": 100, "hold": "10m"})


def _over() -> threading.Event:
    ended = threading.Event()
    ended.set()
    return ended
