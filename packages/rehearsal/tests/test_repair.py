"""The whole loop in a rehearsal's cluster: kernel log → taint → drain → reset → QA → return, by a Prefect flow run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from kubernetes import client

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.profile import load_profile
from gameday.host.virtual import VirtualHost
from gameday.xid.lines import format_xid
from gameday_health.episodes.api import RepairApi
from gameday_health.episodes.model import Episode, State
from gameday_health.episodes.node import STATE_LABEL
from gameday_health.episodes.store import EpisodeStore
from gameday_rehearsal.blueprint import Blueprint, Detector, Size
from gameday_rehearsal.cluster import RehearsalCluster
from tests.health.conftest import KEY, eventually
from tests.support.prefect_api import prefect_api

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
WITHIN_S = 150.0


class Site:
    """A rehearsal's cluster with a repairer; each test has a node of its own."""

    def __init__(self, cluster: RehearsalCluster) -> None:
        self.cluster = cluster
        profile = load_profile(cluster.profile)
        self.admin = Kubernetes(profile.model_copy(update={"kubeconfig": cluster.admin_kubeconfig}))
        self.store = EpisodeStore(RepairApi(self.admin))
        self.hosts = cluster.child("nodes").ready["hosts"]
        self.prefect = prefect_api(cluster.prefect_client)

    def fail_gpu(self, node: str, xid: int = 95) -> None:
        host = VirtualHost(f"{self.hosts}/{node}")
        host.write_kernel_log(f"<3>{format_xid(xid, host.gpus()[1].pci_bus_id)}")
        eventually(lambda: KEY in self.taints(node), WITHIN_S)

    def taints(self, node: str) -> list[str]:
        return [taint.key for taint in self.admin.node(node).spec.taints or []]

    def label(self, node: str) -> str | None:
        labels: dict[str, str] = self.admin.node(node).metadata.labels
        return labels.get(STATE_LABEL)

    def episode(self, node: str) -> Episode | None:
        found = self.store.read(node)
        return found.episode if found else None

    def await_end(self, node: str) -> Episode:
        ended = eventually(lambda: (found := self.episode(node)) and found.ended and found, WITHIN_S)
        assert isinstance(ended, Episode)
        return ended

    def flow_runs(self, episode: Episode) -> list[dict[str, Any]]:
        wanted = {"flow_runs": {"tags": {"all_": [episode.id]}}}
        answer = self.prefect.post("/flow_runs/filter", json=wanted)
        found: list[dict[str, Any]] = answer.raise_for_status().json()
        return found

    def steps(self, episode: Episode) -> list[dict[str, Any]]:
        """Return the task runs of the episode's flow runs, in order."""
        wanted = {"flow_runs": {"tags": {"all_": [episode.id]}}, "sort": "EXPECTED_START_TIME_ASC"}
        answer = self.prefect.post("/task_runs/filter", json=wanted)
        found: list[dict[str, Any]] = answer.raise_for_status().json()
        return found

    def kill(self, name: str) -> None:
        process = self.cluster.child(name).process
        assert process
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    with RehearsalCluster(Blueprint(folder, Size(nodes=5, gpus=4), Detector.DEFAULT, repair=True)) as cluster:
        site = Site(cluster)
        yield site
        site.admin.close()


def test_a_faulty_node_comes_back_by_itself_and_prefect_shows_how(site: Site) -> None:
    site.fail_gpu("gpu-node-1")
    episode = site.await_end("gpu-node-1")
    assert (episode.state, episode.rung) == (State.RETURNED, "gpu-reset")
    assert site.taints("gpu-node-1") == [] and site.label("gpu-node-1") is None
    eventually(lambda: [run["state_type"] for run in site.flow_runs(episode)] == ["COMPLETED"])
    steps = site.steps(episode)
    assert steps[-1]["name"].startswith("return")
    # For each set of tags Prefect keeps a thread and a client until the repairer ends.
    assert all(step["tags"] == [] for step in steps)


def test_a_repair_goes_on_once_prefect_is_back_and_the_taint_does_not_wait_for_it(site: Site) -> None:
    site.kill("prefect")
    site.fail_gpu("gpu-node-2", 79)
    site.cluster.child("prefect").start()
    episode = site.await_end("gpu-node-2")
    assert (episode.state, [attempt.repair for attempt in episode.attempts]) == (State.RETURNED, ["reboot"])


def test_a_killed_repairer_is_followed_by_one_that_repairs_no_second_time(site: Site) -> None:
    site.fail_gpu("gpu-node-3", 79)
    eventually(lambda: site.label("gpu-node-3") == "repairing", WITHIN_S)
    site.kill("repair")
    site.cluster.child("repair").start()
    episode = site.await_end("gpu-node-3")
    assert (episode.state, [attempt.repair for attempt in episode.attempts]) == (State.RETURNED, ["reboot"])
    eventually(lambda: sorted(run["state_type"] for run in site.flow_runs(episode)) == ["COMPLETED", "CRASHED"])


def test_a_flow_run_that_a_person_cancels_leaves_the_node_out(site: Site) -> None:
    policy = client.PolicyV1Api(site.admin.api)
    budget = {"metadata": {"name": "all"}, "spec": {"maxUnavailable": 0, "selector": {}}}
    policy.create_namespaced_pod_disruption_budget("training", budget)
    site.fail_gpu("gpu-node-4")
    eventually(lambda: site.label("gpu-node-4") == "draining", WITHIN_S)
    opened = site.episode("gpu-node-4")
    assert opened
    (run,) = eventually(lambda: site.flow_runs(opened))
    cancel = {"state": {"type": "CANCELLING", "name": "Cancelling"}, "force": True}
    answer = site.prefect.post(f"/flow_runs/{UUID(run['id'])}/set_state", json=cancel)
    answer.raise_for_status()
    episode = site.await_end("gpu-node-4")
    policy.delete_namespaced_pod_disruption_budget("all", "training")
    assert (episode.state, episode.attempts) == (State.CANCELLED, ())
    assert site.taints("gpu-node-4") == [KEY]
    # The label goes after the record's end, which must not be lost.
    eventually(lambda: site.label("gpu-node-4") is None)
    eventually(lambda: [one["state_type"] for one in site.flow_runs(opened)] == ["CANCELLED"])


def test_the_status_command_shows_every_episode(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    from gameday.cli import run

    site.fail_gpu("gpu-node-5")
    site.await_end("gpu-node-5")
    assert run(["health", "status", "--profile", str(site.cluster.folder / "repair-profile.yaml")]) == 0
    shown = capsys.readouterr().out
    assert "gpu-node-5" in shown and "returned" in shown and "xid 95" in shown
