"""A season asks once for all game-days that need approval; without it those are left out, and the others run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
from prefect.client.schemas.objects import StateType
from ruamel.yaml import YAML

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.profile import ClusterProfile
from gameday.flows.approval import SeasonApproval, approve, approve_season
from gameday.history.events import ApprovalAnswered
from gameday.history.journal import read_history
from gameday.plan.load import LoadedPlan
from gameday.plan.models import Plan
from gameday.report.narration import narrate
from gameday.run.abort import Abort
from gameday.run.season_member import Approval, SeasonMember
from gameday.runs.plans import ChosenPlan
from gameday.runs.play import OpenSeason
from gameday.runs.season_record import Assignment, SeasonRecord
from tests.game_days.conftest import QUICK, Arena, changed
from tests.guard.observations import FakeRun, node, plan, profile
from tests.support.prefect_api import prefect_client

REQUIRED = {"approval": {"required": True}}
ASKING, PLAIN = plan(name="asking", **REQUIRED), plan(name="plain")


def assigned(*plans: Plan) -> list[Assignment]:
    return [
        Assignment(run_id=f"season-1-{index:02d}", plan=one.name, asked_as="x", targets=("n1",))
        for index, one in enumerate(plans, 1)
    ]


def approval_of(
    runner: Kubernetes,
    folder: Path,
    runs: list[Assignment],
    by: str | None = None,
    cluster: ClusterProfile | None = None,
) -> SeasonApproval:
    season = OpenSeason("season-1", runner, Abort())
    chosen = [ChosenPlan(one.name, LoadedPlan(one, b"", "", Path("plan.yaml"))) for one in (ASKING, PLAIN)]
    return approve_season(season, cluster or profile(), chosen, runs, by, folder)


def test_plans_that_need_no_approval_ask_nobody(runner: Kubernetes, tmp_path: Path) -> None:
    runs = assigned(PLAIN, PLAIN)
    assert approval_of(runner, tmp_path, runs) == SeasonApproval(None, tuple(runs), ())


def test_the_person_who_approves_on_the_command_line_is_kept_with_the_time(runner: Kubernetes, tmp_path: Path) -> None:
    runs = assigned(PLAIN, ASKING)
    found = approval_of(runner, tmp_path, runs, by="ada")
    given = found.approval
    assert given is not None
    assert (given.by, given.via, found.runs, found.left_out) == ("ada", "command line", tuple(runs), ())
    assert datetime.now(UTC) - given.at < timedelta(minutes=1)


def test_a_season_that_somebody_starts_at_its_deployment_asks_for_all_of_its_runs(
    runner: Kubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gameday.flows.approval.is_started_by_hand", lambda: True)
    runs = assigned(PLAIN, ASKING)
    found = approval_of(runner, tmp_path, runs, by="ada")
    assert [found.of(run.run_id) for run in runs] == [found.approval, found.approval]
    assert found.approval is not None
    assert (found.approval.by, found.approval.via) == ("ada", "Prefect")
    not_asked = approval_of(runner, tmp_path, runs)
    assert [one.plan for one in not_asked.left_out] == ["plain", "asking"], "nobody can be asked outside a flow run"


def test_where_nobody_can_be_asked_only_runs_that_need_approval_are_left_out(
    runner: Kubernetes, tmp_path: Path
) -> None:
    runs = assigned(PLAIN, ASKING, PLAIN)
    found = approval_of(runner, tmp_path, runs)
    assert found.approval is None
    assert found.runs == (runs[0], runs[2])
    (left_out,) = found.left_out
    assert left_out.plan == "asking"
    assert "nobody can be asked for approval outside a flow run" in left_out.why


def test_a_cluster_can_ask_for_approval_of_every_run(runner: Kubernetes, tmp_path: Path) -> None:
    cluster = profile().model_copy(update={"approval": ASKING.approval})
    found = approval_of(runner, tmp_path, assigned(PLAIN, ASKING), cluster=cluster)
    assert [one.plan for one in found.left_out] == ["plain", "asking"]
    assert found.runs == ()


def test_each_run_records_who_approved_its_season_and_when() -> None:
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
    api = clean_arena.cluster.prefect_client
    paths = [_written(tmp_path, "asks-one"), _written(tmp_path, "asks-two"), _written(tmp_path, "plain", asks=False)]
    argv = [sys.executable, "-m", "gameday.cli", "coverage", *paths, "--profile", str(clean_arena.cluster.profile)]
    argv += ["--reports", str(tmp_path / "r"), "--at-once", "2"]
    environment = {**os.environ, **api, "COLUMNS": "200"}
    process = subprocess.Popen(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    try:
        (asked,) = _paused(api, process)
        text = _question(api, asked)
        assert "2 game-days need approval" in text
        given = {"decision": "approve" if approved else "refuse", "name": "ada", "comment": "today"}
        with prefect_client(api) as prefect:
            assert prefect.resume_flow_run(asked, given).status == "ACCEPT"
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
        assert {one.why for one in record.left_out} == {"ada refused approval: today"}


def _written(folder: Path, name: str, *, asks: bool = True) -> str:
    content = changed(changed(QUICK, "name", name), "title", name)
    content = changed(content, "approval", {"required": True, "within": "100s"}) if asks else content
    YAML(typ="safe", pure=True).dump(content, folder / f"{name}.yaml")
    return str(folder / f"{name}.yaml")


def _paused(api: Mapping[str, str], process: subprocess.Popen[str]) -> list[UUID]:
    """Ids of the flow runs that wait for a person."""
    paused = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.PAUSED])))
    deadline = time.monotonic() + 100
    with prefect_client(api) as prefect:
        while time.monotonic() < deadline and process.poll() is None:
            if found := prefect.read_flow_runs(flow_run_filter=paused):
                return [one.id for one in found]
            time.sleep(0.2)
    process.kill()
    pytest.fail(f"nobody was asked:\n{process.communicate()[0]}")


def _question(api: Mapping[str, str], flow_run: UUID) -> str:
    with prefect_client(api) as prefect:
        answer = prefect.request(
            "POST", "/flow_runs/{id}/input/filter", path_params={"id": flow_run}, json={"prefix": "paused", "limit": 20}
        )
    return answer.text
