"""The deployments of prefect.yaml, on a real Prefect server and a real process worker."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gameday.history.events import FaultInjected
from gameday.history.journal import read_history
from gameday.values.results import Step
from tests.game_days.conftest import QUICK, Arena, changed, step_started
from tests.rehearsal.processes import until
from tests.support.prefect_api import prefect_api
from tests.torture.proxy import Switch

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(400)]
ROOT = Path(__file__).resolve().parents[2]


def test_a_deployment_runs_under_a_process_worker(clean_arena: Arena, tmp_path: Path) -> None:
    environment = {
        # A command that ran in this process before may have set Prefect quiet.
        **{name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")},
        "PREFECT_HOME": str(tmp_path / "prefect"),
        **clean_arena.cluster.prefect_client,
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_LOGGING_LEVEL": "INFO",
    }

    def prefect(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "prefect", "--no-prompt", *arguments],
            check=False,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    plan = tmp_path / "plan.yaml"
    YAML(typ="safe", pure=True).dump(QUICK, plan)
    prefect("work-pool", "create", "gameday", "--type", "process")
    prefect("deploy", "--all")
    parameters = {"plan": str(plan), "profile": str(clean_arena.cluster.profile), "reports": str(tmp_path / "reports")}
    parameters["approved_by"] = "ada"
    prefect("deployment", "run", "game-day/game-day (breaks one GPU)", "--params", json.dumps(parameters))
    prefect("worker", "start", "--pool", "gameday", "--run-once")
    run = next((tmp_path / "reports").iterdir())
    assert (run / "report.html").is_file()
    assert read_history(run / "history.jsonl").records
    api = prefect_api(clean_arena.cluster.prefect_client)
    runs = api.post("/flow_runs/filter", json={}).json()
    deployed = [run["state"] for run in runs if run["deployment_id"] and run["parameters"].get("plan") == str(plan)]
    assert [state["name"] for state in deployed] == ["Completed"], deployed
    (flow_run,) = [one for one in runs if one["deployment_id"] and one["parameters"].get("plan") == str(plan)]
    artifacts = api.post("/artifacts/filter", json={}).json()
    made = [artifact for artifact in artifacts if artifact["flow_run_id"] == flow_run["id"]]
    (shown,) = [artifact["data"] for artifact in made if artifact["key"] == "report"]
    assert shown.startswith("**Passed**, cluster clean, virtual GPUs.")
    assert "| held | " in shown
    (bar,) = [artifact for artifact in made if artifact["key"] == "progress"]
    assert (bar["type"], bar["data"], bar["description"]) == ("progress", 100, "ended, cluster clean")
    assert re.fullmatch(rf"{QUICK['name']} on gpu-node-\d+ GPU \d, {run.name}", flow_run["name"])
    assert {QUICK["name"], "xid", "rehearsal"} <= set(flow_run["tags"])
    logs = api.post("/logs/filter", json={"logs": {"flow_run_id": {"any_": [flow_run["id"]]}}})
    said = [log["message"] for log in logs.json()]
    assert any("fault xid went in on gpu-node-" in line for line in said), said
    assert any("qa node: done" in line for line in said)


@pytest.fixture
def way(clean_arena: Arena, monkeypatch: pytest.MonkeyPatch) -> Iterator[Switch]:
    """To the arena's Prefect server, and the only one that game-days know of."""
    with Switch(int(clean_arena.cluster.urls["prefect"].rpartition(":")[2])) as switch:
        monkeypatch.setitem(clean_arena.cluster.urls, "prefect", f"http://127.0.0.1:{switch.port}")
        yield switch


def test_a_server_that_is_gone_for_good_costs_neither_undo_nor_result(clean_arena: Arena, way: Switch) -> None:
    played = clean_arena.play_and_when(QUICK, step_started(Step.INJECT), lambda _: way.cut())
    assert played.exit_code == 0, played.output
    assert "PASSED" in played.output
    assert f"the Prefect server http://127.0.0.1:{way.port}/api does not answer" in played.output
    assert played.folder is not None
    assert (played.folder / "report.html").is_file()


def test_a_person_who_stops_waiting_for_a_server_gets_the_result(clean_arena: Arena, way: Switch) -> None:
    process, reports = clean_arena.start(QUICK)
    while not list(reports.glob("*/history.jsonl")):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    way.cut()
    while not list(reports.glob("*/report.html")):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(3)
    played = clean_arena.finish(process, reports)
    assert played.exit_code == 0, played.output
    assert "PASSED" in played.output


def test_a_server_that_restarts_and_whose_sqlite_is_then_locked_has_the_result_in_the_end(clean_arena: Arena) -> None:
    server, url = clean_arena.cluster.child("prefect"), clean_arena.cluster.urls["prefect"]
    process, reports = clean_arena.start(changed(QUICK, "name", "restarted"))
    until(lambda: injected(reports), 120, "the fault is in")
    server.end()
    server.start()
    server.await_url(f"{url}/api/health")
    with closing(sqlite3.connect(clean_arena.cluster.folder / "prefect/prefect.db")) as other_writer:
        other_writer.execute("BEGIN IMMEDIATE")
        until(lambda: list(reports.glob("*/report.html")), 120, "the run has its report")
        assert process.poll() is None, "the run did not wait for Prefect to take its result"
        other_writer.rollback()
    played = clean_arena.finish(process, reports)
    assert played.exit_code == 0, played.output
    runs = prefect_api(clean_arena.cluster.prefect_client).post("/flow_runs/filter", json={}).json()
    assert [run["state_name"] for run in runs if run["name"].startswith("restarted on ")] == ["Completed"]


def injected(reports: Path) -> bool:
    return any(read_history(path).of(FaultInjected) for path in reports.glob("*/history.jsonl"))
