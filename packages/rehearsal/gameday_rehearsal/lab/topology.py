"""The topology-aware scheduler of a lab: a second scheduler beside kube-scheduler, and the kind of object it reads.

Pods choose it by `schedulerName`, as in NVIDIA's talk (KubeCon Europe 2025: "kube-scheduler plus a separate
topology-aware scheduler"), and as scheduler-plugins advises if it must leave a cluster's other pods alone.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx

from gameday.errors import ChildError
from gameday.plan.rehearsal import TOPOLOGY_SCHEDULER, LabComponent
from gameday_rehearsal.lab.identities import NODES_USER, TOPOLOGY_USER
from gameday_rehearsal.lab.settings import LabSettings
from gameday_rehearsal.nodes.topology import API_GROUP, DEFINITION, DEFINITIONS, definition, is_served
from kubesim.kubeconfig import Kubeconfig

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_PLUGIN = "NodeResourceTopologyMatch"
_LOAD_USER = "system:serviceaccount:gameday:gameday-api-client"
_SERVED_WITHIN_S = 60.0
_LOOK_EVERY_S = 0.2


def write_configuration(folder: Path, settings: LabSettings) -> Path:
    """Write the scheduler's configuration file and return its path; raises OSError.

    The plugin filters and scores as its own example configures it, without a cache of reservations.
    """
    qps = settings.scheduler_qps
    limits = {"qps": qps, "burst": 2 * qps} if qps else {}
    enabled = {"enabled": [{"name": _PLUGIN}]}
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(folder / "topology-scheduler.kubeconfig"), **limits},
        "profiles": [
            {
                "schedulerName": TOPOLOGY_SCHEDULER,
                "plugins": {"filter": enabled, "score": enabled},
                "pluginConfig": [{"name": _PLUGIN, "args": {"scoringStrategy": {"type": "LeastAllocated"}}}],
            }
        ],
    }
    path = folder / f"{LabComponent.TOPOLOGY_SCHEDULER}.json"
    path.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return path


class TopologyObjects:
    """The definition of NodeResourceTopology objects in a lab's cluster, and the rights to read and write them."""

    def __init__(self, admin: Kubeconfig, url: str) -> None:
        """Prepare; `url` is the API server's."""
        self._admin = admin
        self._url = url

    def grant(self) -> None:
        """Let the scheduler do what kube-scheduler may, and let scheduler, nodes and load use the objects.

        Raises ChildError.
        """
        with self._http() as http:
            for path, body in _rights():
                self._ask(http, "POST", path, body)

    def define(self) -> None:
        """Create the definition and wait until its objects are served. Raises ChildError."""
        deadline = time.monotonic() + _SERVED_WITHIN_S
        with self._http() as http:
            self._ask(http, "POST", DEFINITIONS, definition())
            while not is_served(self._ask(http, "GET", f"{DEFINITIONS}/{DEFINITION}").json()):
                if time.monotonic() > deadline:
                    raise ChildError(f"kube-apiserver does not serve {DEFINITION} after {_SERVED_WITHIN_S:g} s")
                time.sleep(_LOOK_EVERY_S)

    def remove(self) -> None:
        """Delete the definition with all its objects, and wait until it is gone. Raises ChildError."""
        deadline, path = time.monotonic() + _SERVED_WITHIN_S, f"{DEFINITIONS}/{DEFINITION}"
        with self._http() as http:
            while self._ask(http, "DELETE", path).status_code != httpx.codes.NOT_FOUND:
                if time.monotonic() > deadline:
                    raise ChildError(f"kube-apiserver still has {DEFINITION} after {_SERVED_WITHIN_S:g} s")
                time.sleep(_LOOK_EVERY_S)

    def _http(self) -> httpx.Client:
        return httpx.Client(base_url=self._url, verify=self._admin.tls or True, trust_env=False, timeout=30.0)

    def _ask(self, http: httpx.Client, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        try:
            answer = http.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise ChildError(f"kube-apiserver: {method} {path}: {type(error).__name__}: {error}") from None
        if answer.is_error and answer.status_code not in (httpx.codes.CONFLICT, httpx.codes.NOT_FOUND):
            raise ChildError(f"kube-apiserver refused {method} {path}: {answer.status_code}: {answer.text[:300]}")
        return answer


def _rights() -> list[tuple[str, dict[str, Any]]]:
    read, write = ["get", "list", "watch"], ["create", "get", "update"]
    roles = {
        "gameday:topology-scheduler": ([_rule(API_GROUP, "noderesourcetopologies", read)], TOPOLOGY_USER),
        "gameday:topology-updater": (
            [
                _rule(API_GROUP, "noderesourcetopologies", write),
                _rule("apiextensions.k8s.io", "customresourcedefinitions", ["list", "watch"]),
            ],
            NODES_USER,
        ),
        "gameday:topology-reader": ([_rule(API_GROUP, "noderesourcetopologies", ["list"])], _LOAD_USER),
    }
    made = [
        (f"{_RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules}) for name, (rules, _) in roles.items()
    ]
    bound = [(name, name, user) for name, (_, user) in roles.items()]
    bound += [(f"{TOPOLOGY_USER}-as-{role}", role, TOPOLOGY_USER) for role in _STOCK_ROLES]
    made += [(f"{_RBAC}/clusterrolebindings", _binding(name, "ClusterRole", role, user)) for name, role, user in bound]
    reader = "extension-apiserver-authentication-reader"
    return [
        *made,
        (
            f"{_RBAC}/namespaces/kube-system/rolebindings",
            _binding(f"{TOPOLOGY_USER}-as-{reader}", "Role", reader, TOPOLOGY_USER),
        ),
    ]


_STOCK_ROLES = ("system:kube-scheduler", "system:volume-scheduler")


def _rule(group: str, resource: str, verbs: list[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": [resource], "verbs": verbs}


def _binding(name: str, kind: str, role: str, user: str) -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": kind, "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
