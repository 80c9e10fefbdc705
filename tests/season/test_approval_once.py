"""A season asks once for all of its game-days that need a yes; a no leaves those out, and the others run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from ruamel.yaml import YAML

from gameday.cluster.kubernetes import Kubernetes
from gameday.flows.approval import approve, approve_season
from gameday.history.events import ApprovalAnswered
from gameday.history.journal import read_history
from gameday.plan.models import Plan
from gameday.report.narration import narrate
from gameday.run.abort import Abort
from gameday.run.season_member import Approval, SeasonMember
from gameday.season.record import Assignment, SeasonRecord
from gameday.season.run import OpenSeason
from tests.game_days.conftest import QUICK, Arena, changed
from tests.guard.observations import FakeRun, node, plan, profile

REQUIRED = {"approval": {"required": True}}
ASKING, PLAIN = plan(**REQUIRED), plan()


def runs(*plans: Plan) -> list[tuple[Assignment, Plan]]:
    return [
        (Assignment(run_id=f"season-1-{number:02d}", plan=one.name, asked_as="x", targets=("n1",)), one)
        for number, one in enumerate(plans, 1)
    ]


def season(runner: Kubernetes) -> OpenSeason:
    return OpenSeason("season-1", runner, Abort())


def test_nobody_is_asked_for_plans_that_need_nobody(runner: Kubernetes, tmp_path: Path) -> None:
    assert approve_season(season(runner), profile(), runs(PLAIN, PLAIN), None, tmp_path) == (None, {})


def test_who_says_yes_on_the_command_line_is_kept_with_the_time(runner: Kubernetes, tmp_path: Path) -> None:
    given, left_out = approve_season(season(runner), profile(), runs(PLAIN, ASKING), "ada", tmp_path)
    assert given is not None
    assert (given.by, given.via, left_out) == ("ada", "command line", {})
    assert datetime.now(UTC) - given.at < timedelta(minutes=1)


def test_where_nobody_can_be_asked_only_those_that_need_it_are_left_out(runner: Kubernetes, tmp_path: Path) -> None:
    given, left_out = approve_season(season(runner), profile(), runs(PLAIN, ASKING, PLAIN), None, tmp_path)
    assert given is None
    assert list(left_out) == ["season-1-02"]
    assert "nobody can be asked for approval outside a flow run" in left_out["season-1-02"]


def test_a_clusters_approval_is_asked_for_every_run(runner: Kubernetes, tmp_path: Path) -> None:
    cluster = profile().model_copy(update={"approval": ASKING.approval})
    _, left_out = approve_season(season(runner), cluster, runs(PLAIN, ASKING), None, tmp_path)
    assert list(left_out) == ["season-1-01", "season-1-02"]


def test_each_run_tells_who_said_yes_for_its_season_and_when() -> None:
    at = datetime(2026, 11, 21, 8, 30, tzinfo=UTC)
    run = FakeRun(ASKING, profile(), node("a"))
    given = Approval(by="ada", at=at, via="Prefect", comment="go")
    run.member = SeasonMember(season="season-1", targets=("a",), seed=1, approval=given)
    approve(run, run.targets, None)  # type: ignore[arg-type]
    (event,) = run.events
    assert isinstance(event, ApprovalAnswered)
    assert (event.approved, event.by, event.season, event.answered_at) == (True, "ada", "season-1", at)
    said = narrate(event)
    assert said is not None
    assert (said.text, said.at) == ("Approved via Prefect, once for season season-1: go", at)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("approved", [True, False])
def test_a_season_asks_in_prefect_once(clean_arena: Arena, tmp_path: Path, approved: bool) -> None:
    api = f"{clean_arena.cluster.urls['prefect']}/api"
    paths = [_written(tmp_path, "asks-one"), _written(tmp_path, "asks-two"), _written(tmp_path, "plain", asks=False)]
    argv = [sys.executable, "-m", "gameday.cli", "coverage", *paths, "--profile", str(clean_arena.cluster.profile)]
    argv += ["--reports", str(tmp_path / "r"), "--at-once", "2"]
    environment = {**os.environ, "PREFECT_API_URL": api, "COLUMNS": "200"}
    process = subprocess.Popen(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    try:
        (asked,) = _paused(api, process)
        text = _question(api, asked)
        assert "2 game-days need a yes" in text
        given = {"approved": approved, "name": "ada", "comment": "today"}
        answer = httpx.post(f"{api}/flow_runs/{asked}/resume", json={"run_input": given}, timeout=10)
        assert answer.json()["status"] == "ACCEPT"
        said, _ = process.communicate(timeout=180)
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert f"/runs/flow-run/{asked}" in said
    record = SeasonRecord.load(next((tmp_path / "r").glob("season-*/season.json")).parent)
    if approved:
        assert len(record.places) == 3
        answers = [
            read_history(tmp_path / "r" / one.run_id / "history.jsonl").of(ApprovalAnswered) for one in record.places
        ]
        assert sorted(len(found) for found in answers) == [0, 1, 1]
    else:
        assert [one.plan for one in record.places] == ["plain"]
        assert {one.why for one in record.left_out} == {"ada turned it down: today"}


def _written(folder: Path, name: str, *, asks: bool = True) -> str:
    content = changed(changed(QUICK, "name", name), "title", name)
    content = changed(content, "approval", {"required": True, "within": "100s"}) if asks else content
    YAML(typ="safe", pure=True).dump(content, folder / f"{name}.yaml")
    return str(folder / f"{name}.yaml")


def _paused(api: str, process: subprocess.Popen[str]) -> list[str]:
    """Ids of the flow runs that wait for a person."""
    wanted = {"flow_runs": {"state": {"type": {"any_": ["PAUSED"]}}}}
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and process.poll() is None:
        if found := httpx.post(f"{api}/flow_runs/filter", json=wanted, timeout=10).json():
            return [one["id"] for one in found]
        time.sleep(0.2)
    process.kill()
    pytest.fail(f"nobody was asked:\n{process.communicate()[0]}")


def _question(api: str, flow_run: str) -> str:
    wanted = {"prefix": "paused", "limit": 20, "exclude_keys": []}
    return httpx.post(f"{api}/flow_runs/{flow_run}/input/filter", json=wanted, timeout=10).text
