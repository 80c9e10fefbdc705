"""Make the empty embedded cluster one that lives: our RBAC, our service accounts' kubeconfigs, training jobs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from ruamel.yaml import YAML

from gameday.rehearsal.kubeconfig import Kubeconfig

RBAC = Path(__file__).resolve().parents[2] / "deploy" / "rbac"
"""The manifests of a real cluster, in force here too."""

_NAMESPACE = "gameday"
_TRAINING = "training"
_TOKEN_SECONDS = 24 * 3600
_TIMEOUT_S = 30.0
_PLURALS = {
    "Namespace": "namespaces",
    "ServiceAccount": "serviceaccounts",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
}


class SeedError(Exception):
    """The fresh API server refused what every rehearsal begins with; the message holds its own words."""


class Seeder:
    """The cluster's administrator while it is being set up; plain JSON, for the official client's start costs more
    than all the requests."""

    def __init__(self, http: httpx.Client, cluster: dict[str, Any]) -> None:
        self._http = http
        self._cluster = cluster

    def rights(self) -> None:
        """Create the namespaces, service accounts, roles and bindings that deploy/rbac describes; raises SeedError."""
        for manifest in sorted(RBAC.glob("*.yaml"), key=lambda path: (path.stem != "namespace", path.stem)):
            for document in YAML(typ="safe", pure=True).load_all(manifest.read_text(encoding="utf-8")):
                if document:
                    self._create(_collection(document), document)
        self._create("/api/v1/namespaces", {"metadata": {"name": _TRAINING}})

    def service_account_kubeconfig(self, account: str, path: Path) -> Path:
        """Write a kubeconfig (mode 0600) whose only right is the service account's own token; raises SeedError."""
        request = {"spec": {"audiences": [], "expirationSeconds": _TOKEN_SECONDS}}
        answer = self._create(f"/api/v1/namespaces/{_NAMESPACE}/serviceaccounts/{account}/token", request)
        content: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": account,
            "clusters": [{"name": "rehearsal", "cluster": self._cluster}],
            "users": [{"name": account, "user": {"token": answer["status"]["token"]}}],
            "contexts": [
                {"name": account, "context": {"cluster": "rehearsal", "user": account, "namespace": _NAMESPACE}}
            ],
        }
        path.touch(mode=0o600)
        with path.open("w", encoding="utf-8") as file:
            YAML(typ="safe", pure=True).dump(content, file)
        return path

    def training(self, nodes: int, gpus: int) -> None:
        """Two training jobs that keep three quarters of the GPUs busy, so that charts show a living cluster.

        A quarter stays free: resubmitted jobs and canaries must have a place, or
        their waiting would prove nothing about taints. Nodes of one GPU stay empty.
        Raises SeedError.
        """
        for name, share, load in (("pretrain", gpus // 2, "0.95"), ("finetune", gpus // 4, "0.7")):
            if share:
                self._create(f"/apis/batch/v1/namespaces/{_TRAINING}/jobs", _training_job(name, nodes, share, load))

    def _create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = self._http.post(path, json=body)
        except httpx.HTTPError as error:
            raise SeedError(f"POST {path}: {type(error).__name__}: {error}") from None
        if answer.is_error and answer.status_code != httpx.codes.CONFLICT:
            raise SeedError(f"POST {path}: {answer.status_code}: {answer.text[:300]}")
        created: dict[str, Any] = answer.json()
        return created


@contextmanager
def seeding(admin: Path) -> Iterator[Seeder]:
    """A seeder with the rights of this kubeconfig."""
    kubeconfig = Kubeconfig.load(admin)
    headers = {"Authorization": f"Bearer {kubeconfig.token}"} if kubeconfig.token else {}
    cluster = YAML(typ="safe", pure=True).load(admin.read_text(encoding="utf-8"))["clusters"][0]["cluster"]
    with httpx.Client(
        base_url=kubeconfig.server, headers=headers, verify=kubeconfig.tls or True, timeout=_TIMEOUT_S, trust_env=False
    ) as http:
        yield Seeder(http, cluster)


def _collection(document: dict[str, Any]) -> str:
    """The path new objects of this kind are posted to."""
    version = document["apiVersion"]
    root = f"/api/{version}" if version == "v1" else f"/apis/{version}"
    namespace = document["metadata"].get("namespace")
    scope = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{scope}/{_PLURALS[document['kind']]}"


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
