"""Whole seasons on the rehearsal cluster, as a person would run them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from prefect.settings import temporary_settings
from ruamel.yaml import YAML

from gameday import cli
from gameday.history.events import FaultInjected, TargetsChosen
from gameday.history.journal import read_history
from gameday.processes.prefect_server import client_environment
from gameday.runs.season_page import render_season
from gameday.runs.season_record import SeasonRecord
from tests.game_days.conftest import PATIENCE_S, QUICK, QUIET, Arena, changed, patient
from tests.support.prefect_api import client_settings
from tests.torture.proxy import Switch

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(1800)]


def plan_file(folder: Path, name: str, plan: dict[str, Any] | None = None, **changes: object) -> str:
    """Write a plan, by default the patient one, and return its path."""
    plan = changed(plan or patient(QUICK), "name", name)
    for path, value in changes.items():
        plan = changed(plan, path.replace("__", "."), value)
    YAML(typ="safe", pure=True).dump(plan, folder / f"{name}.yaml")
    return str(folder / f"{name}.yaml")


@pytest.mark.gate
def test_game_days_of_a_season_have_nodes_of_their_own(clean_arena: Arena, tmp_path: Path) -> None:
    """Two at once, and a third as soon as there is room for it, on a node whose pods may not be back yet."""
    plans = [plan_file(tmp_path, name, expect__workloads__running_pods="any") for name in ("one", "two", "three")]
    said, settings = io.StringIO(), {**client_settings(clean_arena.cluster.prefect_client), **QUIET}
    arguments = ["--profile", str(clean_arena.cluster.profile), "--reports", str(tmp_path / "r"), "--at-once", "2"]
    with temporary_settings(settings), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = cli.run(["coverage", *plans, *arguments])
    assert code == 0, said.getvalue()
    folder = next((tmp_path / "r").glob("season-*/season.json")).parent
    coverage = json.loads((folder / "coverage.json").read_bytes())
    rows = {row["plan"]: row for row in coverage["matrix"]["rows"]}
    assert {row["outcome"] for row in rows.values()} == {"passed"}
    first, second, _ = (set(row["targets"]) for row in sorted(rows.values(), key=lambda row: str(row["run_id"])))
    assert first and not first & second
    alerts = {cell["state"] for row in rows.values() for cell in row["cells"] if cell["signal"] == "alert"}
    assert alerts == {"seen"}
    chosen = [
        read_history(tmp_path / "r" / row["run_id"] / "history.jsonl").of(TargetsChosen)[0] for row in rows.values()
    ]
    assert all(folder.name in choice.rule for choice in chosen)
    again = render_season(folder, SeasonRecord.load(folder).started)
    assert again.content.result.exit_code == 0
    assert "../" in again.html.read_text()


def test_a_prefect_server_that_is_gone_for_good_costs_a_season_neither_page_nor_result(
    clean_arena: Arena, tmp_path: Path
) -> None:
    with Switch(int(clean_arena.cluster.urls["prefect"].rpartition(":")[2])) as way:
        plan = plan_file(tmp_path, "one", expect__workloads__running_pods="any")
        argv = [sys.executable, "-m", "gameday.cli", "coverage", plan, "--reports", "r"]
        api = client_environment(f"http://127.0.0.1:{way.port}", clean_arena.cluster.prefect_password)
        api["PREFECT_CLIENT_MAX_RETRIES"] = "1"
        environment = {**os.environ, **api, "COLUMNS": "200"}
        with subprocess.Popen(
            [*argv, "--profile", str(clean_arena.cluster.profile)],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, cwd=tmp_path,
        ) as process:  # fmt: skip
            try:
                while not injected(tmp_path / "r"):
                    assert process.poll() is None, process.communicate()[0]
                    time.sleep(0.1)
                way.cut()
                said, _ = process.communicate(timeout=PATIENCE_S)
            finally:
                process.kill()
    assert process.returncode == 0, said
    assert f"the Prefect server http://127.0.0.1:{way.port}/api does not answer" in said
    (page,) = (tmp_path / "r").glob("season-*/coverage.html")
    assert page.stat().st_size > 10_000


def injected(reports: Path) -> bool:
    return any(read_history(one).of(FaultInjected) for one in reports.glob("*/history.jsonl"))
