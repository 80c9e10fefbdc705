"""The deployments of prefect.yaml and the forms that Prefect draws of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prefect.deployments.runner import RunnerDeployment

from gameday.cli.deployment_form import Choices, offered
from gameday.cli.deployments import DeclaredDeployment, built, declared, fill_in, per_cluster
from gameday.cli.register_deployments import register_deployments
from gameday.cli.up import _named_clusters
from gameday.errors import CommandError, DocumentError
from gameday.faults.registry import parameter_models
from gameday.flows.choices import plan_of, source_of
from gameday.plan.catalogue import package_plans, shipped_plans
from gameday.plan.load import load_plan
from gameday.shipped import shipped_prefect_file

CHOICES = Choices(
    plans={"/team/own.yaml": "/team/own.yaml: Ours · network", "xid-48": "xid-48: A double-bit error · kernel log"},
    with_arms={"compare-remediations": "compare-remediations: Reset or reboot · kernel log"},
    profiles={"eu": "/p/eu.yaml", "us": "/p/us.yaml"},
    sources={"eu": "/p/eu.yaml", "us": "/p/us.yaml", "ap": "block:ap"},
    reports="/r",
)
SHIPPED = {one.name.partition(" (")[0]: one for one in declared(shipped_prefect_file())}


def filled_in(one: DeclaredDeployment, choices: Choices = CHOICES) -> RunnerDeployment:
    made = built(one, choices, Path("/work"))
    fill_in(made, choices)
    return made


def form(name: str) -> dict[str, dict[str, Any]]:
    return dict(filled_in(SHIPPED[name])._parameter_openapi_schema.properties)


def test_the_form_of_a_game_day_offers_plans_and_clusters_and_nothing_that_programs_set() -> None:
    shown = form("game-day")
    assert list(shown) == ["plan", "profile", "approved_by"]
    with_words, by_name = shown["plan"]["anyOf"]
    assert with_words["enum"][:2] == list(CHOICES.plans.values()), "what people choose"
    assert by_name["enum"][:2] == list(CHOICES.plans), "what programs give"
    assert shown["profile"]["title"] == "Cluster"
    assert (shown["profile"]["enum"], shown["profile"]["default"]) == (["eu", "us", "ap"], "eu")
    assert shown["approved_by"]["type"] == "string"
    assert "default" not in shown["approved_by"]


def test_what_says_what_is_broken_and_where_is_not_optional_so_that_quick_run_shows_the_form() -> None:
    """Prefect's *Quick run* shows the form of a deployment that requires a parameter, and runs any other at once."""
    for name, one in SHIPPED.items():
        made = filled_in(one)
        required = set(made._parameter_openapi_schema.required)
        assert ("profile" in required) == ("breaks-things" in one.tags), name
        assert required <= {*made.parameters, "plan", "node", "start"}, "programs need not give what has a default"


def test_names_and_tags_say_which_deployments_break_things() -> None:
    every = [*declared(shipped_prefect_file()), *per_cluster(["eu"])]
    for one in every:
        breaks, reads = "(breaks " in one.name, one.name.endswith("(read only)")
        assert one.name.endswith((")",)), one.name
        assert list(one.tags) == (["breaks-things"] if breaks else ["read-only"] if reads else []), one.name
        assert one.description.startswith("**Breaks ") == breaks, one.name
    assert {one.entrypoint.rpartition(".")[2] for one in every if "(breaks " in one.name} == {
        "game_day",
        "comparison",
        "season",
        "seasons",
    }


def test_the_words_of_a_plan_are_its_title_its_layer_what_it_takes_and_whether_it_is_dangerous() -> None:
    plans = shipped_plans() | package_plans()
    without, with_arms = offered(plans)
    words = without | with_arms
    assert words["gpu-fell-off-the-bus"].endswith("-bus: A GPU falls off the bus · kernel log · repair: reboot")
    assert set(words) == set(plans)
    assert {plan_of(said) for said in words.values()} == set(plans), "the flow gets the bare name"
    assert "needs the lab" in words["etcd-slow"]
    dangerous = {name for name, path in plans.items() if load_plan(path, parameter_models()).plan.dangers()}
    assert dangerous == {name for name, said in words.items() if said.endswith("DANGEROUS")}


def test_a_plan_that_cannot_be_read_is_offered_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("name: [")
    words, _ = offered({"/team/own.yaml": tmp_path / "own.yaml"})
    assert words == {"/team/own.yaml": "/team/own.yaml: cannot be used as it is; `gameday validate` says why"}


def test_a_cluster_is_chosen_by_its_name_and_found_by_its_profile() -> None:
    profiles = filled_in(SHIPPED["weekly"]).parameters["profiles"]
    assert profiles == {"ap": "block:ap", "eu": "/p/eu.yaml", "us": "/p/us.yaml"}
    assert source_of("us", profiles) == "/p/us.yaml"
    assert source_of("/p/other.yaml", profiles) == "/p/other.yaml"
    assert source_of("eu", None) == "eu"
    assert source_of(None, profiles) is None


def test_plans_with_arms_are_offered_where_their_arms_are_played_together() -> None:
    assert [one["enum"] for one in form("arms")["plan"]["anyOf"]] == [
        list(CHOICES.with_arms.values()),
        list(CHOICES.with_arms),
    ]


def test_the_form_of_a_season_offers_plans_as_a_list() -> None:
    shown = form("weekly")
    with_words, by_name = shown["plans"]["anyOf"]
    assert (with_words["type"], by_name["type"]) == ("array", "array")
    assert with_words["items"]["enum"] == [*CHOICES.plans.values(), *CHOICES.with_arms.values()]
    assert by_name["items"]["enum"] == [*CHOICES.plans, *CHOICES.with_arms]
    assert shown["at_once"]["default"] == 2
    assert not {"trigger", "season_id", "command", "reports"} & set(shown)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_parameter_has_words_and_one_type(name: str) -> None:
    for parameter, shown in form(name).items():
        assert shown["title"], parameter
        assert shown["description"], parameter
        assert "anyOf" not in shown or parameter in ("plan", "plans"), parameter
        assert not str(shown.get("default", "")).startswith("P"), f"{parameter}: the flow takes no ISO 8601"


def test_without_a_profile_the_environment_describes_the_cluster() -> None:
    made = filled_in(SHIPPED["game-day"], Choices(CHOICES.plans, {}, {}, {}, "/r"))
    assert made.parameters == {"reports": "/r", "plan": "gpu-fell-off-the-bus"}
    assert "enum" not in made._parameter_openapi_schema.properties["profile"]


def test_a_run_begins_in_the_folder_itself_and_not_in_a_copy() -> None:
    made = filled_in(SHIPPED["game-day"])
    assert made.storage is not None
    assert made.storage.to_pull_step() == {"prefect.deployments.steps.set_working_directory": {"directory": "/work"}}


def test_schedules_are_found_again_by_their_slugs() -> None:
    made = filled_in(SHIPPED["weekly"])
    assert {key: made.parameters[key] for key in ("profile", "reports", "at_once")} == {
        "profile": "eu",
        "reports": "/r",
        "at_once": 2,
    }
    (schedule,) = made.schedules or []
    assert (schedule.schedule.cron, schedule.schedule.timezone) == ("0 10 * * 2", "Etc/UTC")
    assert schedule.slug == "weekly"
    without = SHIPPED["weekly"].schedules[0].model_copy(update={"slug": None})
    two = SHIPPED["weekly"].model_copy(update={"schedules": (without, without)})
    assert [one.slug for one in filled_in(two).schedules or []] == ["1", "2"]


def test_a_limit_of_one_run_at_a_time_is_kept() -> None:
    assert {name for name, one in SHIPPED.items() if one.concurrency_limit == 1} >= {"game-day", "weekly", "reaper"}
    assert filled_in(SHIPPED["game-day"]).concurrency_limit == 1


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
    one = SHIPPED["game-day"].model_copy(update={"entrypoint": entrypoint, "name": "x"})
    with pytest.raises(CommandError, match=f"deployment x: entrypoint '{entrypoint}' is not a flow"):
        filled_in(one)


def test_a_schedule_is_a_cron_line_or_an_interval() -> None:
    one = SHIPPED["weekly"].model_dump(by_alias=True) | {"schedules": [{"active": True}]}
    with pytest.raises(ValueError, match="give cron or interval"):
        DeclaredDeployment.model_validate(one)


def test_each_cluster_has_a_season_and_a_reaper_in_its_own_pool() -> None:
    found = {f"{one.entrypoint.rpartition('.')[2]}/{one.name}": one for one in per_cluster(["eu", "us"])}
    assert {name: one.work_pool.name for name, one in found.items()} == {
        "season/on-eu (breaks GPUs)": "gameday-eu",
        "reaper/on-eu (undoes only)": "gameday-eu",
        "season/on-us (breaks GPUs)": "gameday-us",
        "reaper/on-us (undoes only)": "gameday-us",
        "seasons/clusters (breaks GPUs)": "gameday",
    }
    choices = replace(CHOICES, clusters=("eu", "us"))
    assert filled_in(found["season/on-us (breaks GPUs)"], choices).parameters["profile"] == "us"
    assert found["reaper/on-eu (undoes only)"].schedules == SHIPPED["reaper"].schedules
    shown = filled_in(found["seasons/clusters (breaks GPUs)"], choices)._parameter_openapi_schema.properties
    times = ["within", "begin_within", "end_within"]
    assert list(shown) == ["clusters", "plans", "seed", "at_once", *times, "approved_by"]
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


def test_an_unknown_name_to_reset_is_refused_with_the_names_that_there_are(tmp_path: Path) -> None:
    said = r"--reset 'season/weekly': nothing has this name; there are: season/weekly \(breaks GPUs\), gameday: red"
    with pytest.raises(CommandError, match=said):
        register_deployments([SHIPPED["weekly"]], CHOICES, tmp_path, ["season/weekly"])
