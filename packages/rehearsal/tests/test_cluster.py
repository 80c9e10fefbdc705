"""A cluster start is some seconds of both cores: few tests start one, and without Prefect where it does not matter."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import httpx
import pytest
from ruamel.yaml import YAML

from gameday.errors import StartError
from gameday_rehearsal import cluster as cluster_module
from gameday_rehearsal import programs
from gameday_rehearsal.blueprint import Blueprint, Detector, Size
from gameday_rehearsal.cluster import RehearsalCluster
from gameday_rehearsal.command_lines import PORTS
from gameday_rehearsal.folder import STATE
from gameday_rehearsal.nodes.exporter_release import ExporterRelease
from kubesim.kubeconfig import Kubeconfig
from tests.cluster.servers.conftest import eventually
from tests.rehearsal.processes import RobbedPorts, answers, naming


def _small(folder: Path) -> RehearsalCluster:
    return RehearsalCluster(Blueprint(folder, Size(nodes=1, gpus=1), Detector.DEFAULT, prefect=False))


def _node_names(admin: Path) -> list[str]:
    kubeconfig = Kubeconfig.load(admin)
    headers = {"Authorization": f"Bearer {kubeconfig.token}"}
    answer = httpx.get(f"{kubeconfig.server}/api/v1/nodes", headers=headers, verify=kubeconfig.tls, trust_env=False)
    return [node["metadata"]["name"] for node in answer.raise_for_status().json()["items"]]


def _label_values(cluster: RehearsalCluster, label: str) -> list[str]:
    answer = httpx.get(f"{cluster.urls['prometheus']}/api/v1/label/{label}/values", trust_env=False)
    return answer.raise_for_status().json()["data"]


@pytest.mark.slow
def test_two_clusters_stand_side_by_side_and_leave_nothing(tmp_path: Path) -> None:
    one, two = (
        _small(tmp_path / "one"),
        RehearsalCluster(
            Blueprint(
                tmp_path / "two",
                Size(nodes=2, gpus=4),
                Detector.OFF,
                prefect=False,
                exporter=ExporterRelease.LOWER_CASE,
                kube_state_metrics=True,
            )
        ),
    )
    with one, two:
        assert len(_node_names(one.admin_kubeconfig)) == 1
        assert len(_node_names(two.admin_kubeconfig)) == 2
        assert not set(one.urls.values()) & set(two.urls.values())
        assert one.dead() == two.dead() == []
        assert "kube-state-metrics" not in one.urls, "our own controller watches, and nobody asked for it"
        assert eventually(partial(_label_values, two, "node"), bool) == ["gpu-node-1", "gpu-node-2"]
        for cluster, label, nodes in ((one, "Hostname", 1), (two, "hostname", 2)):
            assert YAML(typ="safe", pure=True).load(cluster.profile)["prometheus_node_label"] == label
            assert len(eventually(partial(_label_values, cluster, label), bool)) == nodes
        with (
            pytest.raises(StartError, match=r"another rehearsal \(process \d+\) runs in .*down --folder"),
            _small(one.folder),
        ):
            pass
        state = (one.folder / STATE).read_text()
        _holds_no_secret(state, one.folder)
        assert json.loads(state)["urls"] == one.urls
        urls = [*one.urls.values(), *two.urls.values()]
        assert all(map(answers, urls))
        assert len(naming(tmp_path)) >= len(urls)
    assert naming(tmp_path) == set()
    assert not any(map(answers, urls))
    assert not (one.folder / STATE).exists()


def _holds_no_secret(state: str, folder: Path) -> None:
    """Every token of the cluster is in one of its kubeconfigs, and those are for their owner's eyes only."""
    kubeconfigs = list(folder.rglob("*.kubeconfig"))
    assert {"admin.kubeconfig", "runner.kubeconfig", "node-health.kubeconfig"} <= {path.name for path in kubeconfigs}
    for path in kubeconfigs:
        (user,) = YAML(typ="safe", pure=True).load(path.read_text())["users"]
        assert user["user"]["token"] not in state
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.slow
def test_a_port_taken_between_choice_and_start_leads_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alertmanager's: it is found dead when all others serve, and Prometheus must learn where the new one is."""
    robbed = RobbedPorts(PORTS.index("alertmanager"))
    monkeypatch.setattr(cluster_module, "HeldPorts", robbed.hold)
    with robbed:
        with _small(tmp_path) as cluster:
            assert cluster.dead() == []
            assert _node_names(cluster.admin_kubeconfig) == ["gpu-node-1"]
            targets = YAML(typ="safe", pure=True).load((tmp_path / "prometheus.yml").read_text())
            assert f"127.0.0.1:{robbed.taken}" not in str(targets)
            assert str(robbed.taken) not in json.dumps(cluster.urls)
        assert naming(tmp_path) == set()


def test_a_missing_program_is_named_with_what_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(programs, "TOOLS", tmp_path / "no-tools")
    with pytest.raises(StartError, match=r"prometheus is neither on PATH nor in .*: run "), _small(tmp_path):
        pass
    assert naming(tmp_path) == set()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match=r"the rehearsal's folder: .*file"), _small(tmp_path / "file" / "folder"):
        pass


@pytest.mark.slow
def test_a_manifest_the_server_refuses_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rbac = tmp_path / "rbac"
    rbac.mkdir()
    (rbac / "bad.yaml").write_text(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: UPPER_case}\nrules: 7\n"
    )
    monkeypatch.setattr("gameday_rehearsal.seed.RBAC", rbac)
    with (
        pytest.raises(StartError, match=r"POST /apis/rbac.authorization.k8s.io/v1/clusterroles: 4\d\d"),
        _small(tmp_path / "cluster"),
    ):
        pass
    assert naming(tmp_path) == set()
