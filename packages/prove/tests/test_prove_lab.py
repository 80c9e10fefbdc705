"""`gameday prove` on Kubernetes' own API server, by an account with the printed rights and no others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from kubernetes import client, config

from gameday_prove.rights import all_rights
from gameday_rehearsal.blueprint import Blueprint, ControlPlane, Detector, Size
from gameday_rehearsal.cluster import RehearsalCluster
from kubesim.kubeconfig import Kubeconfig
from tests.prove.test_prove_cluster import command, words
from tests.rehearsal.lab.plane import need_programs
from tests.support.world import PATIENCE_S

pytestmark = pytest.mark.lab

SHIPPED = {"kind": "ServiceAccount", "name": "prover", "namespace": "default"}


def least_rights(admin: Path, file: Path) -> Path:
    """A kubeconfig of an account with exactly the rights that `--rights` prints."""
    api = config.new_client_from_config(str(admin))
    core, rbac = client.CoreV1Api(api), client.RbacAuthorizationV1Api(api)
    core.create_namespaced_service_account("default", {"metadata": {"name": "prover"}})
    role = yaml.safe_load(all_rights())
    rbac.create_cluster_role(role)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role["metadata"]["name"]}
    binding = {"metadata": {"name": "prover"}, "roleRef": reference, "subjects": [SHIPPED]}
    rbac.create_cluster_role_binding(binding)
    token = core.create_namespaced_service_account_token("prover", "default", {"spec": {}}).status.token
    found = yaml.safe_load(admin.read_text())
    cluster = found["clusters"][0]["cluster"]
    if "certificate-authority" in cluster:
        cluster["certificate-authority"] = str(admin.parent / cluster["certificate-authority"])
    found["users"] = [{"name": "prover", "user": {"token": token}}]
    found["contexts"][0]["context"]["user"] = "prover"
    file.write_text(json.dumps(found))
    assert Kubeconfig.load(file).token == token
    return file


def test_a_least_account_proves_a_real_api_server_and_leaves_nothing(tmp_path: Path) -> None:
    need_programs()
    size = Size(nodes=2, gpus=1)
    blueprint = Blueprint(tmp_path / "cluster", size, Detector.DEFAULT, prefect=False, control_plane=ControlPlane.LAB)
    with RehearsalCluster(blueprint) as cluster:
        kubeconfig = least_rights(cluster.admin_kubeconfig, tmp_path / "least.kubeconfig")
        with command(tmp_path, kubeconfig, "--detector", "gameday", "--posture", "quarantine", "--yes") as process:
            output, _ = process.communicate(timeout=2 * PATIENCE_S)
        (file,) = tmp_path.glob("reports/prove-*/prove.json")
        report = json.loads(file.read_text())
        assert (process.returncode, report["looked"]["surroundings"]["unseen"]) == (0, []), output
        assert words(report, "gameday")[3] == "noticed"
        core = client.CoreV1Api(config.new_client_from_config(str(cluster.admin_kubeconfig)))
        assert "gameday-prove" not in {one.metadata.name for one in core.list_namespace().items}
