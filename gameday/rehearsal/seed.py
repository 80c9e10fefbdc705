"""Make the empty embedded cluster one that lives: our RBAC, our service accounts' kubeconfigs, training jobs."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from kubernetes import client, config, utils
from ruamel.yaml import YAML

RBAC = Path(__file__).resolve().parents[2] / "deploy" / "rbac"
"""The manifests of a real cluster, in force here too."""

_NAMESPACE = "gameday"
_TRAINING = "training"
_TOKEN_SECONDS = 24 * 3600


def _api(kubeconfig: Path) -> client.ApiClient:
    return config.new_client_from_config(str(kubeconfig))


def seed(admin: Path) -> None:
    """Create the namespaces, service accounts, roles and bindings that deploy/rbac describes."""
    api = _api(admin)
    for manifest in sorted(RBAC.glob("*.yaml"), key=lambda path: (path.stem != "namespace", path.stem)):
        try:
            utils.create_from_yaml(api, str(manifest))
        except utils.FailToCreateError as error:
            refused = [one for one in error.api_exceptions if one.status != 409]
            if refused:
                raise
    client.CoreV1Api(api).create_namespace({"metadata": {"name": _TRAINING}})


def service_account_kubeconfig(admin: Path, account: str, path: Path) -> Path:
    """Write a kubeconfig (mode 0600) whose only right is the service account's own token."""
    api = _api(admin)
    request = {"spec": {"audiences": [], "expirationSeconds": _TOKEN_SECONDS}}
    token = client.CoreV1Api(api).create_namespaced_service_account_token(account, _NAMESPACE, request).status.token
    configuration = api.configuration
    ca = base64.b64encode(Path(configuration.ssl_ca_cert).read_bytes()).decode()
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": account,
        "clusters": [
            {"name": "rehearsal", "cluster": {"server": configuration.host, "certificate-authority-data": ca}}
        ],
        "users": [{"name": account, "user": {"token": token}}],
        "contexts": [{"name": account, "context": {"cluster": "rehearsal", "user": account, "namespace": _NAMESPACE}}],
    }
    path.touch(mode=0o600)
    with path.open("w", encoding="utf-8") as file:
        YAML(typ="safe", pure=True).dump(content, file)
    return path


def start_training(admin: Path, nodes: int, gpus: int) -> None:
    """Two training jobs that keep three quarters of the GPUs busy, so that charts show a living cluster.

    A quarter stays free: resubmitted jobs and canaries must have a place, or
    their waiting would prove nothing about taints.
    """
    batch = client.BatchV1Api(_api(admin))
    for name, share, load in (("pretrain", gpus // 2, "0.95"), ("finetune", gpus // 4, "0.7")):
        if share:
            batch.create_namespaced_job(_TRAINING, _training_job(name, nodes, share, load))


def _training_job(name: str, pods: int, gpus: int, load: str) -> dict[str, Any]:
    container = {
        "name": "trainer",
        "image": "ghcr.io/example/trainer:1",
        "command": ["python", "train.py"],
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": {"cpu": "4", "memory": "32Gi"}},
    }
    return {
        "metadata": {"name": name},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 1000,
            "template": {
                "metadata": {
                    "labels": {"app": name},
                    "annotations": {"virtual-node.gameday.dev/gpu-load": load},
                },
                "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2, "containers": [container]},
            },
        },
    }
