"""`gameday prove` as its user starts it, on a rehearsal's cluster with the real controller, Prometheus and rules."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gameday_prove.look import MOST_REQUESTS
from gameday_rehearsal.blueprint import Blueprint, Detector, Size
from gameday_rehearsal.cluster import RehearsalCluster
from kubesim.kubeconfig import Kubeconfig
from tests.cluster.servers.conftest import eventually
from tests.prove.proxying import ProxyingServer, deployment
from tests.support.world import PATIENCE_S

pytestmark = pytest.mark.slow

CONTROLLER = deployment("gameday", "gameday-node-health", "ghcr.io/gpu-gameday/agent:1")
MOVING = ("training", "dmesg-logging")
KINDS = ("namespaces", "nodes", "pods", "configmaps")


def command(folder: Path, kubeconfig: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start `gameday prove` in a folder, as its user does."""
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "COLUMNS": "200"}
    return subprocess.Popen(
        [sys.executable, "-c", "from gameday.cli import main; main()", "prove", *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


class Site:
    """A cluster that this command did not set up."""

    def __init__(self, folder: Path, cluster: RehearsalCluster) -> None:
        self.folder, self.cluster = folder, cluster
        self.server = ProxyingServer(folder, cluster.admin_kubeconfig, cluster.urls["prometheus"])
        self.server.deployments.append(CONTROLLER)
        found = Kubeconfig.load(cluster.admin_kubeconfig)
        headers = {"Authorization": f"Bearer {found.token}"}
        self.api = httpx.Client(base_url=found.server, headers=headers, verify=found.tls or True, trust_env=False)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return command(self.folder, self.server.kubeconfig, *arguments)

    def prove(self, *arguments: str) -> tuple[int, str]:
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=4 * PATIENCE_S)
        return process.returncode, output

    def report(self) -> dict[str, Any]:
        newest = max(self.folder.glob("reports/prove-*/prove.json"), key=lambda path: path.parent.name)
        found: dict[str, Any] = json.loads(newest.read_text())
        return found

    def names(self) -> dict[str, set[str]]:
        """The names of all objects of these kinds, without pods that come and go by themselves."""
        listed = {kind: self.api.get(f"/api/v1/{kind}").raise_for_status().json()["items"] for kind in KINDS}
        return {
            kind: {one["metadata"]["name"] for one in items if one["metadata"].get("namespace") not in MOVING}
            for kind, items in listed.items()
        }

    @contextmanager
    def frozen(self, child: str) -> Iterator[None]:
        process = self.cluster.child(child).process
        assert process
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    blueprint = Blueprint(folder / "cluster", Size(nodes=6, gpus=1), Detector.DEFAULT, prefect=False)
    with RehearsalCluster(blueprint) as cluster:
        made = Site(folder, cluster)
        yield made
        made.server.end()
        made.api.close()


def words(report: dict[str, Any], who: str) -> dict[int, str]:
    return {one["line"]: one["word"] for one in report["verdicts"] if one["who"] == who}


def why(report: dict[str, Any], who: str) -> str:
    return " ".join(one["why"] for one in report["verdicts"] if one["who"] == who)


def test_a_well_cluster_is_proved_well_and_left_as_it_was(site: Site) -> None:
    before = site.names()
    code, output = site.prove("--node", "gpu-node-1", "--posture", "quarantine", "--yes")
    report = site.report()
    assert (code, report["outcome"]) == (0, "passed"), output
    assert report["looked"]["surroundings"]["requests"] <= MOST_REQUESTS
    assert words(report, "gameday") == {1: "noticed", 2: "noticed", 3: "noticed", 4: "not judged"}
    assert words(report, "alerts") == {3: "noticed"}
    assert "GPUFellOffTheBus fires" in why(report, "alerts")
    assert report["ended"]["cleanliness"] == "clean"
    assert site.names() == before
    (left,) = report["left_by_others"]
    assert "kubectl taint node gpu-node-1 trainy.konduktor.ai/faulty:NoSchedule-" in left


def test_a_quiet_proof_leaves_the_node_in_service(site: Site) -> None:
    code, output = site.prove("--node", "gpu-node-2", "--yes")
    report = site.report()
    assert (code, report["left_by_others"]) == (0, []), output
    node = site.api.get("/api/v1/nodes/gpu-node-2").json()
    assert not node["spec"].get("taints") and not node["spec"].get("unschedulable")


def test_a_frozen_monitor_is_named(site: Site) -> None:
    with site.frozen("node-health"):
        code, output = site.prove("--node", "gpu-node-3", "--posture", "quarantine", "--yes")
    report = site.report()
    assert (code, report["outcome"]) == (1, "failed"), output
    assert set(words(report, "gameday").values()) == {"missed"}
    assert "is it frozen" in why(report, "gameday")
    assert words(report, "alerts") == {3: "not judged", 4: "not judged"}


def test_a_shipper_with_a_selector_that_misses_the_node_is_named(site: Site) -> None:
    """The model ships lines without a pod, too, so that here the log store is held as well."""
    path = "/apis/apps/v1/namespaces/dmesg-logging/daemonsets/dmesg"
    selector = {"spec": {"template": {"spec": {"nodeSelector": {"pool": "elsewhere"}}}}}
    headers = {"Content-Type": "application/merge-patch+json"}
    site.api.patch(path, json=selector, headers=headers).raise_for_status()
    pods = "/api/v1/namespaces/dmesg-logging/pods"

    def on_node() -> list[str]:
        return [one["spec"].get("nodeName") for one in site.api.get(pods).json()["items"]]

    eventually(on_node, lambda nodes: "gpu-node-4" not in nodes)
    with site.frozen("logstore"):
        code, output = site.prove("--node", "gpu-node-4", "--yes")
    report = site.report()
    site.api.patch(path, json={"spec": {"template": {"spec": {"nodeSelector": {"pool": None}}}}}, headers=headers)
    assert code == 1, output
    assert set(words(report, "gameday").values()) == {"blind"}
    assert "DaemonSet dmesg-logging/dmesg has no pod on this node (its nodeSelector is" in why(report, "gameday")


def test_ctrl_c_in_the_middle_ends_clean(site: Site) -> None:
    before = site.names()
    process = site.start("--node", "gpu-node-5", "--yes")
    assert process.stdout
    lines = iter(process.stdout.readline, "")
    assert any("watching" in line for line in lines)
    process.send_signal(signal.SIGINT)
    assert "you pressed Ctrl-C" in "".join(lines)
    assert process.wait(PATIENCE_S) == 3
    process.stdout.close()
    assert site.names() == before


def test_what_a_killed_proof_left_is_found_and_removed(site: Site) -> None:
    before = site.names()
    process = site.start("--node", "gpu-node-5", "--yes")
    assert process.stdout
    assert any("watching" in line for line in iter(process.stdout.readline, ""))
    process.kill()
    process.wait(PATIENCE_S)
    process.stdout.close()
    code, output = site.prove("--node", "gpu-node-5", "--yes")
    assert (code, "gameday prove --clean" in output) == (5, True)
    code, output = site.prove("--clean")
    assert (code, "still renews its lease" in output) == (5, True)
    lease = "/apis/coordination.k8s.io/v1/namespaces/gameday-prove/leases/gameday-cluster"
    old = {"spec": {"renewTime": "2026-01-01T00:00:00.000001Z"}}
    site.api.patch(lease, json=old, headers={"Content-Type": "application/merge-patch+json"}).raise_for_status()
    assert site.prove("--clean")[0] == 0
    assert site.names() == before


def test_without_rights_to_see_it_says_which_would_help_and_plays(site: Site) -> None:
    site.server.forbidden |= {"/api/v1/services", "/apis/apps/v1/deployments"}
    try:
        code, output = site.prove("--look", "--detector", "gameday")
    finally:
        site.server.forbidden.clear()
    assert code == 0
    assert "not seen: deployments" in output and "- deployments" in output and "kind: ClusterRole" in output
    assert "gameday: This project's node-health controller, policy default; by your word" in output
