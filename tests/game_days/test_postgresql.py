"""Game-days and seasons under a Prefect server on PostgreSQL, whose database and server restart in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from gameday.exit_codes import ExitCode
from gameday.history.events import FaultInjected, RunEnded
from gameday.history.journal import read_history
from gameday.processes.children import Child
from gameday.values.results import Cleanliness
from tests.game_days.conftest import QUICK, Arena, changed
from tests.rehearsal.processes import until
from tests.support.ports import free_ports
from tests.support.postgres import PostgreSQL
from tests.support.prefect_api import prefect_api

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(400)]
PLANS = ("quick", "one", "two")
_ENDED = {"Completed", "Failed", "Crashed", "Cancelled"}


class Pages:
    """A Prefect server on a database, and `gameday up` with it: what a person has who works with Prefect's pages."""

    def __init__(self, folder: Path, database: PostgreSQL, arena: Arena, stack: ExitStack) -> None:
        self.folder = folder
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        home = {"PREFECT_HOME": str(folder / "prefect"), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
        argv = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
        settings = {**home, "PREFECT_SERVER_DATABASE_CONNECTION_URL": database.url}
        self.server = Child("prefect", argv, folder / "server.log", settings, says_ready=False)
        stack.callback(self.server.end)
        self.start_server()
        self._api = stack.enter_context(prefect_api({"PREFECT_API_URL": f"{self.url}/api"}))
        plans = folder / "plans"
        plans.mkdir()
        for name in PLANS:
            plan = changed(changed(QUICK, "name", name), "expect.workloads.running_pods", "any")
            YAML(typ="safe", pure=True).dump(plan, plans / f"{name}.yaml")
        argv = [sys.executable, "-m", "gameday.cli", "up", "--profile", str(arena.cluster.profile)]
        argv += ["--plans", str(plans), "--reports", str(folder / "reports"), "--folder", str(folder / "up")]
        # A command that ran in this process before may have set Prefect quiet.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        with (folder / "up.txt").open("w") as said:
            self.up = subprocess.Popen(
                argv,
                cwd=folder,
                env={**inherited, **home, "PREFECT_API_URL": f"{self.url}/api"},
                stdout=said,
                stderr=said,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        stack.callback(self._end_up)
        until(lambda: "Ctrl-C ends all of it" in self.words() or self.up.poll() is not None, 120, "it is up")
        assert self.up.poll() is None, self.words()

    def start_server(self) -> None:
        self.server.start()
        self.server.await_url(f"{self.url}/api/health")

    def words(self) -> str:
        return (self.folder / "up.txt").read_text(encoding="utf-8")

    def unanswered(self) -> int:
        """Return how many requests the server has answered with a 500, since its database refuses connections."""
        return (self.folder / "server.log").read_text(encoding="utf-8").count("Exception in ASGI application")

    def begin(self, deployment: str, **parameters: Any) -> str:
        """Start a run as the form does, and return its id."""
        found = self._api.get(f"/deployments/name/{deployment}").raise_for_status().json()["id"]
        begun = self._api.post(f"/deployments/{found}/create_flow_run", json={"parameters": parameters})
        return str(begun.raise_for_status().json()["id"])

    def histories(self) -> list[Path]:
        return sorted((self.folder / "reports").glob("*/history.jsonl"))

    def state_at_the_end(self, run: str) -> str:
        """Wait for the run's end, and return its state."""
        until(lambda: self._run(run)["state_name"] in _ENDED, 200, "the run ends")
        return f"{self._run(run)['state_name']}: {self._run(run)['state'].get('message')}"

    def _run(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = self._api.get(f"/flow_runs/{run}").raise_for_status().json()
        return found

    def _end_up(self) -> None:
        if self.up.poll() is None:
            self.up.send_signal(signal.SIGINT)
            assert self.up.wait(120) == ExitCode.PASSED, self.words()


@pytest.fixture(scope="module")
def database() -> Iterator[PostgreSQL]:
    with PostgreSQL() as started:
        yield started


@pytest.fixture(scope="module")
def pages(database: PostgreSQL, arena: Arena, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    with ExitStack() as stack:
        yield Pages(tmp_path_factory.mktemp("pages"), database, arena, stack)


def injected(histories: list[Path]) -> bool:
    return any(read_history(path).of(FaultInjected) for path in histories)


def test_a_game_day_passes_whose_server_loses_its_database_from_the_fault_to_the_end(
    pages: Pages, database: PostgreSQL, clean_arena: Arena
) -> None:
    plan = str(pages.folder / "plans/quick.yaml")
    run = pages.begin("game-day/game-day (breaks one GPU)", plan=plan, approved_by="ada")
    until(lambda: injected(pages.histories()), 90, "the fault is in")
    database.end()
    try:
        until(lambda: list(pages.folder.glob("reports/*/report.html")), 120, "the run has its report")
        before = pages.unanswered()
        until(lambda: pages.unanswered() > before + 2, 60, "the run and the worker have asked in vain")
    finally:
        database.start()
    assert pages.state_at_the_end(run).startswith("Completed"), pages.words()
    (history,) = pages.histories()
    assert [one.cleanliness for one in read_history(history).of(RunEnded)] == [Cleanliness.CLEAN]
    rows = database.query("select name, state_name from flow_run where state_name = 'Completed'")
    assert [state for _, state in rows] == ["Completed"]
    assert "quick on gpu-node-" in rows[0][0]


def test_a_season_passes_while_the_server_restarts(pages: Pages, database: PostgreSQL, clean_arena: Arena) -> None:
    before = pages.histories()
    plans = [str(pages.folder / f"plans/{name}.yaml") for name in ("one", "two")]
    run = pages.begin("season/weekly (breaks GPUs)", plans=plans, at_once=2, approved_by="ada")
    until(lambda: injected([path for path in pages.histories() if path not in before]), 90, "a fault is in")
    pages.server.end()
    pages.start_server()
    assert pages.state_at_the_end(run).startswith("Completed"), pages.words()
    ended = [one for path in pages.histories() if path not in before for one in read_history(path).of(RunEnded)]
    assert [one.cleanliness for one in ended] == [Cleanliness.CLEAN] * 2
    names = "name like 'one on %' or name like 'two on %'"
    passed = database.query(f"select name from flow_run where state_name = 'Completed' and ({names})")
    assert len(passed) == 2
    for path in (pages.folder / "reports").rglob("*"):
        assert not path.is_file() or database.password.encode() not in path.read_bytes(), path
