"""`gameday up`: what it refuses, a game-day from its form, and an end that leaves nothing broken."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from prefect.client.schemas.objects import TERMINAL_STATES
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from ruamel.yaml import YAML

from gameday.cli import run
from gameday.exit_codes import ExitCode
from gameday.history.events import Aborted, FaultInjected, RunEnded
from gameday.history.journal import read_history
from gameday.processes.prefect_server import client_environment
from gameday.values.results import Cleanliness
from tests.game_days.conftest import PATIENCE_S, changed, patient
from tests.game_days.test_shipped_hands_off import shipped
from tests.rehearsal.processes import naming, until
from tests.support.prefect_api import prefect_api

Capture = pytest.CaptureFixture[str]
PLAN = "xid-95-uncontained-ecc"
GAME_DAY = "game-day/game-day (breaks one GPU)"
PATIENT = "patient-xid-95"
"""The same with bounds that a busy machine keeps, in the folder of one's own plans."""


def test_deploy_names_a_server_that_does_not_answer(capsys: Capture) -> None:
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api", PREFECT_CLIENT_MAX_RETRIES: 0}):
        assert run(["deploy"]) == ExitCode.REFUSED
    assert "the Prefect server http://127.0.0.1:9/api does not answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["up", "--profile", "none.yaml"], ExitCode.USAGE, "cannot use the cluster profile none.yaml"),
        (["up", "--detector", "foo"], ExitCode.USAGE, "no detector profile of this name"),
        (["up", "--repair", "maybe"], ExitCode.USAGE, "choose one of on, off, auto"),
        (["deploy"], ExitCode.REFUSED, "export PREFECT_API_URL="),
    ],
)
def test_refused_before_anything_is_started(
    arguments: list[str], code: ExitCode, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        assert run(arguments) == code
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["up"], ["rehearsal", "up"], ["rehearse"]])
def test_where_no_port_can_be_had_nothing_is_started(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reports").mkdir()  # `rehearse` makes it to see whether it may
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("gameday.processes.ports._LOOPBACK", "192.0.2.1")  # RFC 5737: an address of no machine
    assert run(arguments) == ExitCode.REFUSED
    said = capsys.readouterr().err
    assert said.startswith("gameday: no port of 192.0.2.1 can be had (Cannot assign requested address): ")
    assert said.endswith("then start the command again\n")
    assert [*tmp_path.rglob("*")] == [tmp_path / "reports"]


class Up:
    """A `gameday up` in a folder of its own, and its Prefect server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said = folder / "said.txt"
        (folder / "plans").mkdir()
        self.plan = folder / "plans" / f"{PATIENT}.yaml"
        with self.plan.open("w") as file:
            YAML(typ="safe", pure=True).dump(changed(patient(shipped(PLAN)), "name", PATIENT), file)
        argv = [sys.executable, "-m", "gameday.cli", "up", "--nodes", "4", "--folder", str(folder / "up")]
        with self.said.open("w") as said:
            self.process = subprocess.Popen(
                argv, cwd=folder, stdout=said, stderr=said, stdin=subprocess.DEVNULL, start_new_session=True, umask=0
            )
        until(
            lambda: "Ctrl-C ends all of it" in self.words() or self.process.poll() is not None, PATIENCE_S, "it is up"
        )
        assert self.process.poll() is None, self.words()
        self.pages = self.words().partition("Prefect's pages: ")[2].split()[0]
        self.password = (folder / "up" / "prefect-password").read_text(encoding="ascii")
        self.api = prefect_api(client_environment(self.pages, self.password))

    def words(self) -> str:
        return self.said.read_text(encoding="utf-8")

    def run(self, **parameters: Any) -> str:
        """Start a game-day as the form does, and return its flow run."""
        deployment = self.api.get(f"/deployments/name/{GAME_DAY}").raise_for_status().json()["id"]
        asked = {"approved_by": "ada", **parameters}
        answer = self.api.post(f"/deployments/{deployment}/create_flow_run", json={"parameters": asked})
        return str(answer.raise_for_status().json()["id"])

    def await_end(self, flow_run: str) -> str:
        """Wait until a flow run has ended, and return the name of its last state."""

        def state() -> tuple[str, str]:
            found = self.api.get(f"/flow_runs/{flow_run}").raise_for_status().json()
            return found["state_type"], found["state_name"]

        until(lambda: state()[0] in TERMINAL_STATES, PATIENCE_S, "the game-day ends")
        return state()[1]

    def linked_report(self, flow_run: str) -> httpx.Response:
        """Open the page that the flow run's artifact `report` links."""
        body = {"artifacts": {"flow_run_id": {"any_": [flow_run]}, "key": {"any_": ["report"]}}}
        (shown,) = self.api.post("/artifacts/filter", json=body).raise_for_status().json()
        link = shown["data"].partition("[Open the whole report](")[2].partition(")")[0]
        return httpx.get(link).raise_for_status()

    def scheduled(self) -> set[str]:
        """Return the flow runs that Prefect's scheduler has put in, by their moments."""
        body = {
            "flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}},
            "deployments": {"name": {"any_": ["weekly (breaks GPUs)"]}},
        }
        runs = self.api.post("/flow_runs/filter", json=body).raise_for_status().json()
        return {str(run["expected_start_time"]) for run in runs if run["auto_scheduled"]}

    def histories(self) -> list[Path]:
        return sorted((self.folder / "reports").glob("*/history.jsonl"))

    def end(self) -> None:
        """Ctrl-C, and the end of all that was started."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(PATIENCE_S) == ExitCode.PASSED, self.words()
        until(lambda: not naming(self.folder), PATIENCE_S, "its processes are gone")


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    started = Up(tmp_path)
    yield started
    started.api.close()
    if started.process.poll() is None:
        started.process.kill()
        started.process.wait()


@pytest.mark.gate
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_game_day_from_the_form_passes(up: Up) -> None:
    without = httpx.post(f"{up.pages}/api/deployments/filter", json={}, trust_env=False)
    assert without.status_code == 401
    assert up.password not in up.words()
    mine = [path for path in (up.folder / "up").rglob("*") if path.stat().st_mode & 0o77]
    assert mine == [], "others may open files that hold passwords"
    refused = up.api.get(f"/deployments/name/{GAME_DAY}").json()["id"]
    answer = up.api.post(f"/deployments/{refused}/create_flow_run", json={"parameters": {"plan": "no-such-plan"}})
    assert (answer.status_code, "no-such-plan" in answer.text) == (409, True)
    until(lambda: bool(up.scheduled()), PATIENCE_S, "the scheduler puts the next weekly seasons in")
    moments = [datetime.fromisoformat(moment) for moment in up.scheduled()]
    assert {(at.strftime("%A"), at.hour, at.minute) for at in moments} == {("Tuesday", 10, 0)}
    run = up.run(plan=str(up.plan))
    assert up.await_end(run) == "Completed"
    assert PATIENT in up.linked_report(run).text
    up.end()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_ctrl_c_undoes_the_game_day_that_runs(up: Up) -> None:
    assert up.run(plan=PLAN)
    until(lambda: bool(up.histories()), PATIENCE_S, "the game-day begins")
    (history,) = up.histories()
    until(lambda: bool(read_history(history).of(FaultInjected)), PATIENCE_S, "its fault is in")
    up.end()
    assert "cancelled, and undone now" in up.words()
    with closing(sqlite3.connect(up.folder / "up/prefect/prefect.db")) as database:
        ours = database.execute("select state_name from flow_run where name like ?", [f"{PLAN} on %"])
        assert ours.fetchall() == [("Cancelled",)]
    read = read_history(history)
    assert [one.cleanliness for one in read.of(RunEnded)] == [Cleanliness.CLEAN]
    assert read.of(Aborted)
