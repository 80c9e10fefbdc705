"""Seasons on several clusters: rehearsal clusters, each with a worker of its own, under a real Prefect server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactCollectionFilter, ArtifactCollectionFilterKey
from prefect.client.schemas.objects import FlowRun
from ruamel.yaml import YAML

from gameday import cli
from gameday.flows.seasons import seasons
from gameday.processes.children import Child
from gameday.tasks.cluster_seasons import deployment_of
from gameday_rehearsal.blueprint import Blueprint, Detector, Size
from gameday_rehearsal.cluster import RehearsalCluster
from tests.game_days.conftest import QUICK, drain_prefect
from tests.rehearsal.processes import until
from tests.support.prefect_api import prefect_of_settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
# Four workers and their flows write to one SQLite file, which a busy machine was seen to keep locked for half a minute.
ENVIRONMENT = {
    "PREFECT_WORKER_QUERY_SECONDS": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLIENT_MAX_RETRIES": "8",
}
PROFILE = """\
name: {name}
prometheus: {{url: "http://127.0.0.1:9"}}
alertmanager: {{url: "http://127.0.0.1:9"}}
loki: {{url: "http://127.0.0.1:9"}}
"""


@pytest.fixture(scope="module")
def prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A Prefect server that the settings name."""
    with prefect_of_settings(tmp_path_factory.mktemp("prefect")):
        yield
        drain_prefect()


@pytest.fixture
def folder(prefect: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, in which `gameday deploy` is called."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def deploy(*profiles: Path) -> None:
    arguments = [argument for profile in profiles for argument in ("--profile", str(profile))]
    assert cli.run(["deploy", "--pool-per-cluster", *arguments]) == 0


def written(folder: Path) -> dict[str, Any]:
    (file,) = folder.glob("reports/seasons-*/clusters.json")
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def runs_of(deployment: str) -> list[FlowRun]:
    with get_client(sync_client=True) as client:
        id = client.read_deployment_by_name(deployment).id
        return [run for run in client.read_flow_runs() if run.deployment_id == id]


def test_a_cluster_without_a_worker_and_one_without_a_deployment_have_rows(folder: Path) -> None:
    for name in ("eu", "us"):
        (folder / f"{name}.yaml").write_text(PROFILE.format(name=name))
    deploy(folder / "eu.yaml", folder / "us.yaml")
    state = seasons(["eu", "us", "ap"], begin_within="0s", return_state=True)
    assert state.name == "Failed"
    assert written(folder)["exit_code"] == 5
    eu, us, ap = written(folder)["clusters"]
    for row in (eu, us):
        assert row["code"] == 5
        assert row["why"] == f"no worker began it within 0 s: `prefect worker start --pool gameday-{row['cluster']}`"
        (run,) = runs_of(deployment_of(row["cluster"]))
        assert run.state is not None
        assert run.state.is_cancelled(), "a worker that comes later begins nothing"
        assert row["page"].endswith(str(run.id))
    assert "Prefect has no deployment season/on-ap (breaks GPUs): `gameday deploy --pool-per-cluster" in ap["why"]


def test_a_cancel_cancels_the_seasons_and_still_writes_the_page(folder: Path) -> None:
    (folder / "one.yaml").write_text(PROFILE.format(name="one"))
    deploy(folder / "one.yaml")
    code = "import sys; from gameday.flows.seasons import seasons; print(seasons(['one'], return_state=True).name)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        until(lambda: process.poll() is not None or bool(runs_of(deployment_of("one"))), 120, "the season is started")
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert said.split()[-1] == "Failed"
    (run,) = runs_of(deployment_of("one"))
    assert run.state is not None
    assert run.state.is_cancelled()
    made = written(folder)
    assert (made["exit_code"], "SIGTERM" in made["stopped"]) == (3, True)
    (row,) = made["clusters"]
    assert row["code"] == 3


def named(cluster: RehearsalCluster) -> Path:
    """Return the cluster's profile, with a name of its own."""
    profile = YAML(typ="safe", pure=True).load(cluster.profile.read_text())
    path = cluster.folder.parent / f"{cluster.folder.name}.yaml"
    with path.open("w") as file:
        YAML(typ="safe", pure=True).dump(profile | {"name": cluster.folder.name}, file)
    return path


@contextmanager
def worker(folder: Path, pool: str) -> Iterator[None]:
    argv = [sys.executable, "-m", "prefect", "worker", "start", "--pool", pool, "--type", "process"]
    child = Child("worker", argv, folder / f"worker-{pool}.log", ENVIRONMENT, says_ready=False)
    child.start()
    try:
        yield
    finally:
        child.end()


def test_three_clusters_and_three_workers_of_which_one_cluster_is_gone(folder: Path) -> None:
    plan = folder / "plans" / "quick.yaml"
    plan.parent.mkdir()
    with plan.open("w") as file:
        YAML(typ="safe", pure=True).dump(QUICK, file)
    names = ("alpha", "beta", "gone")
    clusters = [
        RehearsalCluster(Blueprint(folder / name, Size(2, 2), Detector.DEFAULT, prefect=False)) for name in names
    ]
    with ExitStack() as stack:
        # A cluster's processes end with the thread that has started them.
        threads = stack.enter_context(ThreadPoolExecutor(len(clusters)))
        for cluster in clusters:
            stack.callback(cluster.end)
        list(threads.map(RehearsalCluster.start, clusters))
        deploy(*map(named, clusters))
        clusters[2].end()
        for name in ("gameday", *(f"gameday-{name}" for name in names)):
            stack.enter_context(worker(folder, name))
        with get_client(sync_client=True) as client:
            id = client.read_deployment_by_name("seasons/clusters (breaks GPUs)").id
            asked = {"plans": [str(plan)], "at_once": 1, "approved_by": "ada"}
            parent = client.create_flow_run_from_deployment(id, parameters=asked)

            def ended() -> bool:
                state = client.read_flow_run(parent.id).state
                return state is not None and state.is_final()

            until(ended, 400, "the seasons end")
            state = client.read_flow_run(parent.id).state
    made = written(folder)
    rows = {row["cluster"]: row for row in made["clusters"]}
    assert list(rows) == list(names)
    for name in ("alpha", "beta"):
        assert (rows[name]["code"], rows[name]["game_days"]) == (0, {"Passed": 1}), rows[name]
        assert (folder / "reports" / f"{made['id']}-{name}" / "coverage.html").is_file()
    assert rows["gone"]["code"] == 5
    assert "list" in rows["gone"]["why"] or "127.0.0.1" in rows["gone"]["why"]
    assert state is not None
    assert (state.name, made["exit_code"]) == ("Failed", 2), "a refused cluster among others counts as unknown"
    assert made["why"] == "3 clusters: 2 passed, 1 refused."
    assert state.message == f"Unknown, cluster unknown. {made['why']}"
    began = [datetime.fromisoformat(row["started"]) for row in rows.values()]
    assert max(began) < min(datetime.fromisoformat(rows[name]["ended"]) for name in ("alpha", "beta")), "side by side"
    page = (folder / "reports" / made["id"] / "clusters.html").read_text()
    assert all(row["page"] in page and row["page"] for row in rows.values())
    shown = artifact("clusters")
    assert "3 clusters: 2 passed, 1 refused." in shown
    assert f"[alpha]({rows['alpha']['page']})" in shown.replace("\\", "")


def artifact(key: str) -> str:
    """Return an artifact's Markdown."""
    with get_client(sync_client=True) as client:
        (found,) = client.read_latest_artifacts(
            artifact_filter=ArtifactCollectionFilter(key=ArtifactCollectionFilterKey(any_=[key]))
        )
    return str(found.data)
