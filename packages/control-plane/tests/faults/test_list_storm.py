"""A LIST storm against the embedded API server: made, played, taken out, also by another process after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from gameday.agent.task import AgentResult, notes_in
from gameday.errors import HostError
from gameday.faults.base import Evidence
from gameday.host import memory
from gameday.host.api_account import API_ACCOUNT_VARIABLE, API_SERVER_VARIABLE
from gameday.values.results import Cleanliness
from gameday_control_plane.api_clients.notes import RequestsNote, StageNote, StormEndNote, StormNote
from gameday_control_plane.faults import list_storm
from gameday_control_plane.faults.list_storm import ListStormFault, ListStormParameters
from tests.agent.conftest import environment
from tests.control_plane.faults.conftest import LOAD, host_of, make_namespace
from tests.host.fake import FakeHost, VirtualHostServer
from tests.kubesim.processes import ApiServer as Program
from tests.kubesim.processes import eventually

SMALL: dict[str, Any] = {"clients": 3, "objects": 12, "object_size": "1KB", "rounds": 2}
STAGED = {key: value for key, value in SMALL.items() if key != "clients"} | {"stages": [1, 3]}
SECRETS = f"{LOAD}/secrets"


def left(server: Program) -> int:
    with server.http() as http:
        return len(http.get(SECRETS).raise_for_status().json()["items"])


def play(host: FakeHost, **changes: Any) -> tuple[Evidence, tuple[str, ...], list[BaseModel]]:
    """Put a storm in, hold it until it is over, and take it out."""
    fault, parameters = ListStormFault(), ListStormParameters(**changes)
    told: list[BaseModel] = []
    fault.prior_state(parameters, 0, host)
    try:
        evidence = fault.inject(parameters, 0, host)
        lines = fault.hold_and_tell(parameters, 0, host, threading.Event(), told.append)
    finally:
        fault.undo(parameters, 0, host, {})
    assert fault.verify_undone(parameters, 0, host, {})
    return evidence, lines, told


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param({"form": "table"}, marks=pytest.mark.slow),
        pytest.param({"form": "metadata", "read": "any"}, marks=pytest.mark.slow),
        pytest.param({"read": "exact", "act_as": "system-masters"}, marks=pytest.mark.slow),
        pytest.param({"read": "watch-list"}, marks=pytest.mark.slow),
    ],
)
def test_every_list_is_answered_and_told_of(host: FakeHost, server: Program, changes: dict[str, Any]) -> None:
    evidence, lines, told = play(host, **SMALL | changes)
    assert evidence.lines[1].startswith("made: 12 of 1KB")
    assert lines[0] == "6 requests: 6 answered, 0 told to come later (429), 0 failed"
    log = "\n".join(note.model_dump_json() for note in told)
    (begun,) = notes_in(log, StormNote)
    (ended,) = notes_in(log, StormEndNote)
    requests = [one for note in notes_in(log, RequestsNote) for one in note.requests]
    assert (begun.objects, begun.clients, ended.reason) == (12, 3, "rounds done")
    assert begun.list_bytes > 12 * 1000 * 4 / 3
    assert sorted((one.client, one.round) for one in requests) == [(c, r) for c in range(3) for r in range(2)]
    assert {one.bytes > 12 * 1000 for one in requests} == {changes.get("form") != "metadata"}
    assert left(server) == 0


@pytest.mark.slow
def test_stages_are_played_one_after_the_other(
    host: FakeHost, server: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_storm, "STAGE_PAUSE_S", 0.0)
    _, _, told = play(host, **STAGED)
    log = "\n".join(note.model_dump_json() for note in told)
    first, second = (note.stage for note in notes_in(log, StageNote))
    assert (first.clients, second.clients) == (1, 3)
    assert first.began_at < first.ended_at <= first.until <= second.began_at < second.ended_at
    requests = [one for note in notes_in(log, RequestsNote) for one in note.requests]
    assert len([one for one in requests if one.ended_at <= first.until]) == 2
    assert len(requests) == 2 + 6
    assert left(server) == 0


@pytest.mark.slow
def test_a_stage_that_was_ended_is_not_told_as_one(host: FakeHost, server: Program) -> None:
    fault, parameters = ListStormFault(), ListStormParameters(**STAGED)
    fault.inject(parameters, 0, host)
    ended, told = threading.Event(), list[BaseModel]()
    ended.set()
    fault.hold_and_tell(parameters, 0, host, ended, told.append)
    fault.undo(parameters, 0, host, {})
    assert [note for note in told if isinstance(note, StageNote)] == []
    assert left(server) == 0


def test_an_end_before_the_last_round_ends_the_clients(host: FakeHost, server: Program) -> None:
    fault, parameters = ListStormFault(), ListStormParameters(**SMALL | {"rounds": 1000})
    fault.inject(parameters, 0, host)
    ended, told = threading.Event(), list[BaseModel]()
    ended.set()
    fault.hold_and_tell(parameters, 0, host, ended, told.append)
    (note,) = [note for note in told if isinstance(note, StormEndNote)]
    assert note.reason == "told to end"
    fault.undo(parameters, 0, host, {})
    assert left(server) == 0


@pytest.mark.slow
def test_the_undo_waits_for_a_server_that_the_storm_killed(tmp_path: Path) -> None:
    server = Program(tmp_path / "apiserver")
    try:
        make_namespace(server)
        host = host_of(server, tmp_path)
        fault, parameters = ListStormFault(), ListStormParameters(**SMALL | {"rounds": 1000})
        fault.inject(parameters, 0, host)
        assert server.end(signal.SIGKILL) != 0
        undo = threading.Thread(target=fault.undo, args=(parameters, 0, host, {}))
        undo.start()
        server.start()
        undo.join()
        assert fault.verify_undone(parameters, 0, host, {})
        assert left(server) == 0
    finally:
        server.end()


def test_another_process_undoes_by_the_label_alone(host: FakeHost, server: Program) -> None:
    killed, parameters = ListStormFault(), ListStormParameters(**SMALL)
    killed.inject(parameters, 0, host)
    try:
        with server.http() as http:
            http.post(SECRETS, json={"metadata": {"name": "somebody-elses"}}).raise_for_status()
        another = ListStormFault()
        assert not another.verify_undone(parameters, 0, host, {})
        for _ in range(2):
            another.undo(parameters, 0, host, {})
            assert another.verify_undone(parameters, 0, host, {})
        assert left(server) == 1
    finally:
        killed.undo(parameters, 0, host, {})


def test_the_agents_successor_undoes_after_a_kill(host: FakeHost, server: Program, tmp_path: Path) -> None:
    """Play the whole agent, killed while its clients LIST, and the one that is sent to undo."""
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text(server.token())
    (account / "ca.crt").write_bytes(Path(server.ready["ca"]).read_bytes())
    way = {"PATH": os.environ["PATH"], API_SERVER_VARIABLE: server.url, API_ACCOUNT_VARIABLE: str(account)}
    common = {"run_id": "r1", "node": "n", "gpu": 0, "fault": {"type": "list_storm", **SMALL, "rounds": 1000}}
    machine = VirtualHostServer(host)
    processes: list[subprocess.Popen[bytes]] = []

    def start(task: dict[str, Any]) -> subprocess.Popen[bytes]:
        state, log = tmp_path / f"state-{len(processes)}", tmp_path / f"log-{len(processes)}"
        command = [sys.executable, "-m", "gameday.agent"]
        processes.append(subprocess.Popen(command, env=way | environment(task, state, log, machine)))
        return processes[-1]

    try:
        injector = start({"role": "inject", **common, "hold_s": 600})
        eventually((tmp_path / "state-0" / "ready").exists, "the storm is in")
        assert clients_of(tmp_path), "nothing would be seen to end"
        injector.kill()
        injector.wait(20)
        assert left(server) == 12
        assert start({"role": "undo", **common, "undo_state": {}}).wait(60) == 0
        assert left(server) == 0
        assert AgentResult.model_validate_json((tmp_path / "log-1").read_bytes()).cleanliness is Cleanliness.CLEAN
        eventually(lambda: not clients_of(tmp_path), "the dead agent's clients are gone")
    finally:
        for process in processes:
            process.kill()
            process.wait()
        machine.close()


def clients_of(folder: Path) -> list[int]:
    """Return the client processes whose agent had its state in the folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            ours = str(folder).encode() in (process / "environ").read_bytes()
            found += (
                [int(process.name)]
                if ours and b"gameday_control_plane.api_clients" in (process / "cmdline").read_bytes()
                else []
            )
        except OSError:
            continue
    return found


def test_a_storm_over_anothers_objects_is_refused(host: FakeHost) -> None:
    fault, parameters = ListStormFault(), ListStormParameters(**SMALL)
    fault.inject(parameters, 0, host)
    try:
        with pytest.raises(HostError, match="gameday reap"):
            ListStormFault().prior_state(parameters, 0, host)
    finally:
        fault.undo(parameters, 0, host, {})


@pytest.mark.slow
def test_a_host_short_of_memory_ends_the_storm_by_itself(
    host: FakeHost, server: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault, parameters = ListStormFault(), ListStormParameters(**SMALL | {"rounds": 1000})
    fault.inject(parameters, 0, host)
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 100 kB\nMemAvailable: 14 kB\n")
    monkeypatch.setattr(memory, "MEMINFO", meminfo)
    told: list[BaseModel] = []
    with pytest.raises(HostError, match=r"less than 15% .* the storm ended; \d+ requests"):
        fault.hold_and_tell(parameters, 0, host, threading.Event(), told.append)
    with pytest.raises(HostError, match="only 14% of this node's memory is free"):
        fault.undo(parameters, 0, host, {})
        fault.prior_state(parameters, 0, host)
    assert left(server) == 0


@pytest.mark.slow
def test_a_client_process_that_is_killed_in_mid_run_is_an_error_and_leaves_nothing(
    host: FakeHost, server: Program
) -> None:
    fault, parameters = ListStormFault(), ListStormParameters(**SMALL | {"rounds": 1000})
    fault.inject(parameters, 0, host)
    (process,) = fault.load_of(parameters).storms[0]._processes
    os.kill(process._process.pid, signal.SIGKILL)
    with pytest.raises(HostError, match=r"1 client process\(es\) died; \d+ requests"):
        fault.hold_and_tell(parameters, 0, host, threading.Event(), print)
    fault.undo(parameters, 0, host, {})
    assert fault.verify_undone(parameters, 0, host, {})
    assert left(server) == 0


def test_an_account_without_rights_is_refused_before_anything_is_made(host: FakeHost) -> None:
    assert host.api
    host.api.token_file.write_text("nobody")
    with pytest.raises(HostError, match="HTTP 401"):
        ListStormFault().prior_state(ListStormParameters(**SMALL), 0, host)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objects": 20_000, "object_size": "100KB"}, r"20000 objects of 100KB are 2\.00 GB"),
        ({"form": "yaml", "read": "watch-list"}, "no events in YAML"),
        ({"object_size": "2MiB"}, "less than or equal to 1048576"),
        ({"clients": 201}, "less than or equal to 200"),
        ({"stages": [1, 2]}, "leave out one of the two"),
    ],
)
def test_what_no_server_could_serve_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ListStormParameters(**SMALL | changes)


def test_stages_that_do_not_rise_are_refused() -> None:
    with pytest.raises(ValidationError, match="more clients than the one before"):
        ListStormParameters(**STAGED | {"stages": [1, 3, 3]})


def test_the_agent_gets_the_stages_as_the_plan_has_them() -> None:
    staged = ListStormParameters(**STAGED)
    assert ListStormParameters.model_validate_json(staged.model_dump_json()) == staged
