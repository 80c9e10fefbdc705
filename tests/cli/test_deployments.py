"""The deployments of prefect.yaml and the forms that Prefect draws of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gameday.cli.deployments import Choices, DeclaredDeployment, _built, declared, per_cluster
from gameday.cli.up import _named_clusters
from gameday.errors import CommandError, DocumentError
from gameday.shipped import shipped_prefect_file

CHOICES = Choices(
    plans=["/team/own.yaml", "xid-48"],
    with_arms=["compare-remediations"],
    profiles={"/p/eu.yaml": "eu", "/p/us.yaml": "us"},
    blocks=["block:ap"],
    reports="/r",
)
SHIPPED = {one.name: one for one in declared(shipped_prefect_file())}


def form(name: str, choices: Choices = CHOICES) -> dict[str, dict[str, object]]:
    return dict(_built(SHIPPED[name], choices, Path("/work"))._parameter_openapi_schema.properties)


def test_the_form_of_a_game_day_offers_plans_and_clusters_and_nothing_that_programs_set() -> None:
    shown = form("manual")
    assert list(shown) == ["plan", "profile", "approved_by"]
    assert (shown["plan"]["enum"], shown["plan"]["default"]) == (list(CHOICES.plans), "gpu-fell-off-the-bus")
    assert (shown["profile"]["title"], shown["profile"]["enum"]) == ("Cluster", [*CHOICES.profiles, "block:ap"])
    assert shown["profile"]["default"] == "/p/eu.yaml"
    assert shown["profile"]["description"] == "The cluster, by its profile: `/p/eu.yaml` is eu, `/p/us.yaml` is us."
    assert shown["approved_by"]["type"] == "string"
    assert "default" not in shown["approved_by"]


def test_plans_with_arms_are_offered_where_their_arms_are_played_together() -> None:
    assert form("arms")["plan"]["enum"] == ["compare-remediations"]


def test_the_form_of_a_season_offers_plans_as_a_list() -> None:
    shown = form("weekly")
    assert shown["plans"]["items"] == {"type": "string", "enum": [*CHOICES.plans, *CHOICES.with_arms]}
    assert shown["at_once"]["default"] == 2
    assert not {"trigger", "season_id", "command", "reports"} & set(shown)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_parameter_has_words_and_one_type(name: str) -> None:
    for parameter, shown in form(name).items():
        assert shown["title"], parameter
        assert shown["description"], parameter
        assert "anyOf" not in shown, parameter
        assert not str(shown.get("default", "")).startswith("P"), f"{parameter}: the flow takes no ISO 8601"


def test_without_a_profile_the_environment_describes_the_cluster() -> None:
    built = _built(SHIPPED["manual"], Choices(["xid-48"], [], {}, [], "/r"), Path("/work"))
    assert built.parameters == {"reports": "/r"}
    assert "enum" not in built._parameter_openapi_schema.properties["profile"]


def test_a_run_begins_in_the_folder_itself_and_not_in_a_copy() -> None:
    built = _built(SHIPPED["manual"], CHOICES, Path("/work"))
    assert built.storage is not None
    assert built.storage.to_pull_step() == {"prefect.deployments.steps.set_working_directory": {"directory": "/work"}}


def test_what_a_schedule_sets_stays_set() -> None:
    built = _built(SHIPPED["weekly"], CHOICES, Path("/work"))
    assert built.parameters == {"profile": "/p/eu.yaml", "reports": "/r", "at_once": 2, "trigger": "scheduled"}
    (schedule,) = built.schedules or []
    assert (schedule.schedule.cron, schedule.schedule.timezone) == ("0 10 * * 2", "Etc/UTC")


def test_a_limit_of_one_run_at_a_time_is_kept() -> None:
    assert {one.name for one in SHIPPED.values() if one.concurrency_limit == 1} >= {"manual", "weekly", "reaper"}
    assert _built(SHIPPED["manual"], CHOICES, Path("/work")).concurrency_limit == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x\ndeployments: 3\n", "prefect.yaml:2"),
        ("name: x\ndeployments:\n  - name: a\n    scheduels: []\n", "scheduels"),
        ("name: x\ndeployments: [\n", "prefect.yaml"),
    ],
)
def test_a_prefect_yaml_that_cannot_be_used_is_refused_with_its_place(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "prefect.yaml"
    file.write_text(text)
    with pytest.raises(DocumentError, match=said):
        declared(file)


@pytest.mark.parametrize(
    "entrypoint", ["gameday.nope.flow", "gameday.flows.game_day.nope", "gameday.flows.game_day.Path"]
)
def test_a_deployment_of_what_is_no_flow_is_refused(entrypoint: str) -> None:
    one = SHIPPED["manual"].model_copy(update={"entrypoint": entrypoint})
    with pytest.raises(CommandError, match=f"deployment manual: entrypoint '{entrypoint}' is no flow"):
        _built(one, CHOICES, Path("/work"))


def test_a_schedule_is_a_cron_line_or_an_interval() -> None:
    one = SHIPPED["weekly"].model_dump(by_alias=True) | {"schedules": [{"active": True}]}
    with pytest.raises(ValueError, match="give cron or interval"):
        DeclaredDeployment.model_validate(one)


def test_each_cluster_has_a_season_and_a_reaper_in_its_own_pool() -> None:
    clusters = {"eu": "/p/eu.yaml", "us": "block:us"}
    found = {f"{one.entrypoint.rpartition('.')[2]}/{one.name}": one for one in per_cluster(clusters)}
    assert {name: one.work_pool.name for name, one in found.items()} == {
        "season/on-eu": "gameday-eu",
        "reaper/on-eu": "gameday-eu",
        "season/on-us": "gameday-us",
        "reaper/on-us": "gameday-us",
        "seasons/clusters": "gameday",
    }
    choices = replace(CHOICES, clusters=clusters)
    assert _built(found["season/on-us"], choices, Path("/work")).parameters == {"profile": "block:us", "reports": "/r"}
    assert found["reaper/on-eu"].schedules == SHIPPED["reaper"].schedules
    shown = _built(found["seasons/clusters"], choices, Path("/work"))._parameter_openapi_schema.properties
    assert list(shown) == ["clusters", "plans", "seed", "at_once", "within", "begin_within", "end_within"]
    assert shown["clusters"]["items"] == {"type": "string", "enum": ["eu", "us"]}
    assert shown["clusters"]["default"] == ["eu", "us"]
    written = [name for name, one in shown.items() if "default" in one]
    assert written == ["clusters", "plans", "seed", "at_once"], "what the form fills in must be taken again"


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["eu", "eu"], "are both named eu"),
        (["Prod EU"], "name: Prod EU cannot name a work pool"),
        ([], "--pool-per-cluster needs clusters"),
    ],
)
def test_clusters_that_cannot_have_a_pool_each_are_refused(names: list[str], said: str, tmp_path: Path) -> None:
    servers = "".join(f"{one}: {{url: 'http://127.0.0.1:9'}}\n" for one in ("prometheus", "alertmanager", "loki"))
    files = [tmp_path / f"{number}.yaml" for number, _ in enumerate(names)]
    for file, name in zip(files, names, strict=True):
        file.write_text(f"name: {name}\n{servers}")
    with pytest.raises(CommandError, match=said):
        _named_clusters(list(map(str, files)))
