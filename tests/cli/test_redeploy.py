"""What people set in Prefect stays through a deploy, and is said; what only our files changed arrives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import (
    DeploymentUpdate,
    WorkPoolUpdate,
)
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import PrefectHTTPStatusError
from prefect.states import Cancelled
from ruamel.yaml import YAML

from gameday.cli import run
from gameday.cli.redeploy import changed_by_people, digests_of
from gameday.exit_codes import ExitCode
from gameday.shipped import shipped_prefect_file
from tests.rehearsal.processes import until

SEASON = "season/weekly (breaks GPUs)"
GAME_DAY = "game-day/game-day (breaks one GPU)"
PROFILE = """\
name: {name}
prometheus: {{url: 'http://127.0.0.1:9'}}
alertmanager: {{url: 'http://127.0.0.1:9'}}
loki: {{url: 'http://127.0.0.1:9'}}
"""


@pytest.mark.parametrize(
    ("files", "there", "last", "kept"),
    [
        ("new", "old", "old", False),  # our files changed it
        ("old", "theirs", "old", True),  # a person did
        ("new", "theirs", "old", True),  # both did
        ("new", "new", "old", False),  # both did the same
        (None, "old", "old", False),  # our files have it no more
        (None, "theirs", "old", True),
        (None, "theirs", None, True),  # a person added it
        ("new", None, None, False),  # our files added it
        ("old", None, "old", True),  # a person deleted it
        (None, None, "old", False),
    ],
)
def test_what_a_person_changed_since_the_last_deploy_is_kept(
    files: str | None, there: str | None, last: str | None, kept: bool
) -> None:
    def one(value: str | None) -> dict[str, str]:
        return {} if value is None else {"x": value}

    assert changed_by_people(one(files), one(there), digests_of(one(last))) == (["x"] if kept else [])


@pytest.fixture
def client(whole_prefect: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SyncPrefectClient]:
    """A client of a server without any deployment, in a folder with the profile eu.yaml."""
    monkeypatch.chdir(tmp_path)
    for name in ("eu", "us"):
        (tmp_path / f"{name}.yaml").write_text(PROFILE.format(name=name))
    with get_client(sync_client=True) as client:
        yield client
        for one in client.read_deployments():
            client.delete_deployment(one.id)
        for variable in client.read_variables():
            client.delete_variable_by_name(variable.name)
        client.delete_work_pool("gameday")


Deploy = Callable[..., list[str]]


@pytest.fixture
def deploy(client: SyncPrefectClient, capsys: pytest.CaptureFixture[str]) -> Deploy:
    def deploy(*arguments: str) -> list[str]:
        """Call `gameday deploy`, and return what it kept."""
        assert run(["deploy", "--profile", "eu.yaml", *arguments]) == ExitCode.PASSED
        return [line for line in capsys.readouterr().out.splitlines() if ": kept" in line]

    return deploy


def edited(folder: Path, edit: Callable[[dict[str, Any]], None]) -> tuple[str, str]:
    """Return the option for a prefect.yaml in which the season is changed."""
    content = YAML(typ="safe", pure=True).load(shipped_prefect_file())
    edit(next(one for one in content["deployments"] if one["name"].startswith("weekly")))
    with (folder / "prefect.yaml").open("w") as file:
        YAML(typ="safe", pure=True).dump(content, file)
    return "--prefect-file", str(folder / "prefect.yaml")


def of(client: SyncPrefectClient, name: str = SEASON) -> DeploymentResponse:
    return client.read_deployment_by_name(name)


def times(found: DeploymentResponse) -> dict[str | None, tuple[str, bool]]:
    return {one.slug: (getattr(one.schedule, "cron", ""), one.active) for one in found.schedules}


pytestmark = [pytest.mark.timeout(300)]


@pytest.mark.slow
def test_a_paused_season_stays_paused_whatever_else_changes(
    client: SyncPrefectClient, deploy: Deploy, tmp_path: Path
) -> None:
    assert deploy() == []
    (before,) = of(client).schedules
    client.update_deployment_schedule(of(client).id, before.id, active=False)
    line = f"{SEASON}: kept schedule weekly, active: false (the files say: true)"
    assert deploy() == [line]
    assert deploy() == [line], "and again at each deploy"
    (after,) = of(client).schedules
    assert (after.id, after.active) == (before.id, False)
    later = edited(tmp_path, lambda one: one["schedules"][0].update(cron="0 8 * * 3"))
    assert deploy(*later) == [line]
    assert times(of(client)) == {"weekly": ("0 8 * * 3", False)}, "new times of our files, and still paused"
    client.update_deployment_schedule(of(client).id, before.id, active=True)
    assert deploy(*later) == [], "the person who paused it has turned it on again"


@pytest.mark.slow
def test_what_people_set_stays_and_is_said(client: SyncPrefectClient, deploy: Deploy, tmp_path: Path) -> None:
    deploy()
    found = of(client)
    (schedule,) = found.schedules
    client.update_deployment_schedule(
        found.id, schedule.id, schedule=CronSchedule(cron="0 9 * * 2", timezone="Europe/Berlin"), parameters={"seed": 7}
    )
    mine = {**found.parameters, "at_once": 1, "seed": 3}
    client.update_deployment(
        found.id,
        DeploymentUpdate(
            parameters=mine, tags=["ours"], description="Ask Ada first.", concurrency_limit=3, job_variables={"env": {}}
        ),
    )
    client.pause_deployment(found.id)
    client.create_deployment_schedules(found.id, [(CronSchedule(cron="0 7 * * 4"), True)])
    client.update_work_pool("gameday", WorkPoolUpdate(is_paused=True, concurrency_limit=5))
    (queue,) = client.read_work_queues(work_pool_name="gameday")
    client.update_work_queue(queue.id, is_paused=True)
    said = deploy("--plans", str(tmp_path))
    assert said == [
        "work pool gameday: kept paused; nothing starts until `prefect work-pool resume gameday`",
        "work pool gameday: kept its limit of 5 runs at a time",
        "work queue default of pool gameday: kept paused; nothing starts in it until "
        "`prefect work-queue resume default --pool gameday`",
        f'{SEASON}: kept description: "Ask Ada first." (the files say: {said[3].partition("(the files say: ")[2]}',
        f'{SEASON}: kept tags: ["ours"] (the files say: ["breaks-things"])',
        f"{SEASON}: kept concurrency_limit: 3 (the files say: 1)",
        f"{SEASON}: kept paused: true (the files say: false)",
        f'{SEASON}: kept job_variables: {{"env": {{}}}} (the files say: {{}})',
        f"{SEASON}: kept parameter at_once: 1 (the files say: 2)",
        f'{SEASON}: kept schedule weekly: "0 9 * * 2 Europe/Berlin" (the files say: "0 10 * * 2 Etc/UTC")',
        f"{SEASON}: kept parameter seed: 3 (the files say: none)",
        said[11],
    ]
    assert re.fullmatch(rf'{re.escape(SEASON)}: kept schedule \w+: "0 7 \* \* 4 UTC" \(the files say: none\)', said[11])
    kept = of(client)
    assert (kept.description, kept.tags, kept.paused) == ("Ask Ada first.", ["ours"], True)
    assert kept.parameters == mine
    assert kept.global_concurrency_limit is not None
    assert kept.global_concurrency_limit.limit == 3
    assert times(kept) == {"weekly": ("0 9 * * 2", True), None: ("0 7 * * 4", True)}
    assert next(one for one in kept.schedules if one.slug).parameters == {"seed": 7}
    assert deploy("--reset", SEASON, "--plans", str(tmp_path)) == said[:3]
    reset = of(client)
    assert times(reset) == {"weekly": ("0 10 * * 2", True)}
    assert (reset.tags, reset.paused, reset.parameters) == (["breaks-things"], False, found.parameters)


@pytest.mark.slow
def test_what_people_deleted_does_not_come_back(client: SyncPrefectClient, deploy: Deploy) -> None:
    deploy()
    found = of(client)
    client.delete_deployment_schedule(found.id, found.schedules[0].id)
    client.delete_deployment(of(client, GAME_DAY).id)
    lines = [
        f"{GAME_DAY}: kept deleted",
        f'{SEASON}: kept schedule weekly: none (the files say: "0 10 * * 2 Etc/UTC")',
    ]
    assert deploy() == lines
    assert of(client).schedules == []
    assert deploy("--reset", SEASON, "--reset", GAME_DAY) == []
    assert times(of(client)) == {"weekly": ("0 10 * * 2", True)}
    assert of(client, GAME_DAY).tags == ["breaks-things"]


@pytest.mark.slow
def test_what_only_our_files_changed_arrives(client: SyncPrefectClient, deploy: Deploy, tmp_path: Path) -> None:
    deploy()
    client.update_deployment_schedule(of(client).id, of(client).schedules[0].id, active=False)

    def edit(season: dict[str, Any]) -> None:
        season |= {"description": "New.", "tags": ["new"], "concurrency_limit": 2, "parameters": {"at_once": 6}}
        season["schedules"] = [{"slug": "second", "cron": "0 6 * * 1"}]

    assert deploy(*edited(tmp_path, edit)) == [], "a schedule that our files have no more goes, also a paused one"
    found = of(client)
    assert (found.description, found.tags, found.parameters["at_once"]) == ("New.", ["new"], 6)
    assert found.global_concurrency_limit is not None
    assert found.global_concurrency_limit.limit == 2
    assert times(found) == {"second": ("0 6 * * 1", True)}


@pytest.mark.slow
def test_a_deploy_that_changes_nothing_writes_nothing(client: SyncPrefectClient, deploy: Deploy) -> None:
    """A write makes the scheduled runs anew: one that somebody put off, or cancelled, would come back."""
    deploy()
    before = {one.name: one.updated for one in client.read_deployments()}
    assert deploy() == []
    assert {one.name: one.updated for one in client.read_deployments()} == before


@pytest.mark.slow
def test_a_deployment_whose_pool_was_deleted_gets_it_again(client: SyncPrefectClient, deploy: Deploy) -> None:
    deploy()
    client.delete_work_pool("gameday")
    assert deploy() == []
    assert {one.work_pool_name for one in client.read_deployments()} == {"gameday"}


@pytest.mark.slow
def test_a_default_that_is_no_longer_offered_is_kept(client: SyncPrefectClient, deploy: Deploy) -> None:
    deploy("--profile", "us.yaml")
    found = of(client)
    client.update_deployment(found.id, DeploymentUpdate(parameters={**found.parameters, "profile": "us"}))
    assert deploy() == [f'{SEASON}: kept parameter profile: "us" (the files say: "eu")']
    form = of(client).parameter_openapi_schema
    assert form is not None
    assert form["properties"]["profile"]["enum"] == ["eu", "us"]


@pytest.mark.slow
def test_of_a_deployment_that_prefects_own_command_made_everything_is_kept(
    client: SyncPrefectClient, deploy: Deploy
) -> None:
    deploy()
    found = of(client)
    for variable in client.read_variables():
        client.delete_variable_by_name(variable.name)
    client.update_deployment_schedule(found.id, found.schedules[0].id, active=False)
    client.update_deployment(found.id, DeploymentUpdate(tags=["theirs"]))
    assert deploy() == [
        f'{SEASON}: kept tags: ["theirs"] (the files say: ["breaks-things"])',
        f"{SEASON}: kept schedule weekly, active: false (the files say: true)",
    ]


@pytest.mark.slow
def test_plans_are_taken_in_words_and_by_name_and_nothing_else_is(client: SyncPrefectClient, deploy: Deploy) -> None:
    deploy()
    found = of(client, GAME_DAY)
    assert found.parameter_openapi_schema is not None
    with_words, _ = found.parameter_openapi_schema["properties"]["plan"]["anyOf"]
    assert found.parameters["plan"] in with_words["enum"]
    for plan in (with_words["enum"][0], "xid-95-uncontained-ecc"):
        assert client.create_flow_run_from_deployment(found.id, parameters={"plan": plan}).parameters["plan"] == plan
    with pytest.raises(PrefectHTTPStatusError, match="409"):
        client.create_flow_run_from_deployment(found.id, parameters={"plan": "no-such-plan"})
    season = of(client).id
    client.create_flow_run_from_deployment(season, parameters={"plans": ["xid-95-uncontained-ecc"]})


@pytest.mark.slow
def test_a_date_that_somebody_cancelled_stays_cancelled(
    client: SyncPrefectClient, deploy: Deploy, tmp_path: Path
) -> None:
    deploy()
    season = of(client).id

    def dates() -> dict[str, list[str]]:
        """Return the states of the season's runs by their dates."""
        found: dict[str, list[str]] = {}
        for one in client.read_flow_runs():
            if one.deployment_id == season and one.state:
                found.setdefault(str(one.expected_start_time), []).append(one.state.name or "")
        return found

    until(lambda: len(dates()) > 1, 120, "Prefect has put the next seasons in")
    first = min(dates())
    (run,) = [
        one for one in client.read_flow_runs() if one.deployment_id == season and str(one.expected_start_time) == first
    ]
    client.set_flow_run_state(run.id, Cancelled(), force=True)
    deploy(*edited(tmp_path, lambda one: one.update(description="New.")))
    until(lambda: len(dates()) > 1, 120, "Prefect has put them in anew")
    assert dates()[first] == ["Cancelled"]
