"""One rehearsal cluster, and lanes on it: a namespace, a node and a way to the API server for one game-day at a time.

The exclusion is per namespace, so that game-days in different ones run side
by side; what a lane is held to is its own node and its own namespace.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from kubernetes import client, config
from ruamel.yaml import YAML

from gameday.cluster.kube_transport import ApiRetry
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.profile import load_profile
from gameday.host.virtual import VirtualHost
from gameday.processes.prefect_server import client_environment
from gameday.reaper.reap import ReapResult, reap
from gameday.values.nodes import GFD_TIMESTAMP_LABEL
from gameday_rehearsal.blueprint import Blueprint, Detector, Size
from gameday_rehearsal.cluster import RehearsalCluster
from gameday_rehearsal.seed import RBAC, collection_of, seeding
from kubesim.kubeconfig import Kubeconfig, write_kubeconfig
from tests.torture.matrix import POWER_LIMIT_W
from tests.torture.proxy import ApiProxy, Switch

ROOT = Path(__file__).resolve().parents[2]
# A crash costs this much waiting, here as in production (30 s there): a lease's duration, observed.
LEASE_S = 8.0
# An undo shows on the node at the next beat of the field's owner: the kubelet's status, the controller's reason.
_SETTLES_WITHIN_S = 60.0
Snapshot = dict[str, Any]


@dataclass
class Lane:
    name: str
    node: str
    folder: Path
    cluster: RehearsalCluster
    proxy: ApiProxy
    prefect: Switch
    profile: Path
    core: client.CoreV1Api

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **client_environment(f"http://127.0.0.1:{self.prefect.port}", self.cluster.prefect_password),
            "PREFECT_HOME": str(self.folder / "prefect"),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "COLUMNS": "200",
        }

    def start(self, plan: Path, reports: Path, profile: Path | None = None, **variables: str) -> subprocess.Popen[str]:
        """`gameday run` as a person would; `variables` are added to its environment."""
        argv = [sys.executable, "-m", "gameday.cli", "run", str(plan), "--profile", str(profile or self.profile)]
        return subprocess.Popen(
            [*argv, "--reports", str(reports)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**self.environment(), **variables},
            start_new_session=True,
            cwd=ROOT,
        )

    def reap(self) -> ReapResult:
        """As the scheduled flow does, with the reaper's own rights."""
        with closing_kubernetes(self.folder / "reaper-profile.yaml") as kubernetes:
            return reap(kubernetes)

    def begin(self) -> None:
        """What was there before need not be what a maker ships: a default in its place would be a leak, too."""
        self.on_host("nvidia-smi", "-i", "3", "-pl", str(POWER_LIMIT_W))
        self.on_host("tc", "qdisc", "replace", "dev", "ib0", "root", "handle", "7:", "pfifo", "limit", "500")
        self.host.write_file("/etc/nccl.conf", "NCCL_DEBUG=WARN\n# the team's own\n")

    @staticmethod
    def ready(node: client.V1Node) -> bool:
        return not node.spec.taints and any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)

    def snapshot(self) -> Snapshot:
        node = self.core.read_node(self.node)
        pods = self.core.list_namespaced_pod(self.name).items
        maps = self.core.list_namespaced_config_map(self.name, label_selector="gameday.dev/ledger=true").items
        leases = client.CoordinationV1Api(self.core.api_client).list_namespaced_lease(self.name).items
        jobs = client.BatchV1Api(self.core.api_client).list_namespaced_job(self.name).items
        return {
            "taints": sorted((t.key, t.value or "", t.effect) for t in node.spec.taints or []),
            "unschedulable": bool(node.spec.unschedulable),
            "labels": {k: v for k, v in (node.metadata.labels or {}).items() if k != GFD_TIMESTAMP_LABEL},
            "annotations": dict(node.metadata.annotations or {}),
            "conditions": {c.type: c.status for c in node.status.conditions or []},
            "allocatable": dict(node.status.allocatable or {}),
            "objects": sorted(
                f"{kind}/{o.metadata.name}"
                for kind, found in (("pod", pods), ("ledger", maps), ("lease", leases), ("job", jobs))
                for o in found
            ),
            "host": httpx.get(f"{self.hosts}/{self.node}/snapshot", timeout=20).json(),
        }

    def settled(self, before: Snapshot) -> list[str]:
        """What differs from before, once nothing does, or in the end."""
        deadline = time.monotonic() + _SETTLES_WITHIN_S
        while (left := differences(before, self.snapshot())) and time.monotonic() < deadline:
            time.sleep(0.3)
        return left

    @property
    def hosts(self) -> str:
        found: str = self.cluster.child("nodes").ready["hosts"]
        return found

    @property
    def host(self) -> VirtualHost:
        return VirtualHost(f"{self.hosts}/{self.node}")

    def on_host(self, *argv: str) -> None:
        done = self.host.run(argv, 20)
        assert done.exit_status == 0, done


def differences(before: Any, after: Any, where: str = "") -> list[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted({*before, *after})
        return [line for k in keys for line in differences(before.get(k), after.get(k), f"{where}/{k}")]
    return [] if before == after else [f"{where}: {before!r} -> {after!r}"]


@contextmanager
def closing_kubernetes(profile: Path) -> Iterator[Kubernetes]:
    kubernetes = Kubernetes(load_profile(profile))
    try:
        yield kubernetes
    finally:
        kubernetes.close()


@contextmanager
def arena(folder: Path, lanes: int) -> Iterator[list[Lane]]:
    """A rehearsal cluster with so many lanes, each on a node of its own; two nodes more, for resubmitted work."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        cluster = stack.enter_context(
            RehearsalCluster(Blueprint(folder / "cluster", Size(nodes=lanes + 2, gpus=4), Detector.DEFAULT))
        )
        yield [_lane(stack, folder, cluster, number) for number in range(1, lanes + 1)]


def _lane(stack: ExitStack, folder: Path, cluster: RehearsalCluster, number: int) -> Lane:
    name = f"lane-{number}"
    home = folder / name
    home.mkdir()
    for document in _rights(name):
        _create(cluster, collection_of(document), document)
    proxy = stack.enter_context(ApiProxy(Kubeconfig.load(cluster.folder / "runner.kubeconfig")))
    prefect = stack.enter_context(Switch(int(cluster.urls["prefect"].rpartition(":")[2])))
    profile = _profile(cluster, home, name, "gameday-runner", {"server": proxy.url}, "profile.yaml")
    document = YAML(typ="safe", pure=True).load((cluster.folder / "runner.kubeconfig").read_text(encoding="utf-8"))
    _profile(cluster, home, name, "gameday-reaper", document["clusters"][0]["cluster"], "reaper-profile.yaml")
    configuration = client.Configuration()
    config.load_kube_config(str(cluster.admin_kubeconfig), client_configuration=configuration)
    # A blow on another lane may restart the API server under this one.
    configuration.retries = ApiRetry(connect=30, read=5, other=0, backoff_factor=0.2, backoff_max=2.0)
    core = client.CoreV1Api(client.ApiClient(configuration))
    lane = Lane(name, f"gpu-node-{number}", home, cluster, proxy, prefect, profile, core)
    lane.begin()
    return lane


def _profile(
    cluster: RehearsalCluster, home: Path, namespace: str, account: str, server: dict[str, Any], file: str
) -> Path:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    token = _create(cluster, path, {"spec": {"expirationSeconds": 24 * 3600}})["status"]["token"]
    kubeconfig = home / f"{account}.kubeconfig"
    write_kubeconfig(kubeconfig, account, cluster=server, user={"token": token}, namespace=namespace)
    content = YAML(typ="safe", pure=True).load(cluster.profile.read_text(encoding="utf-8"))
    content |= {"name": namespace, "kubeconfig": str(kubeconfig), "namespace": namespace, "lease_duration_s": LEASE_S}
    with (home / file).open("w", encoding="utf-8") as out:
        YAML(typ="safe", pure=True).dump(content, out)
    return home / file


def _rights(namespace: str) -> list[dict[str, Any]]:
    """deploy/rbac for another namespace: the same roles, bound to accounts of its own."""
    items = []
    for manifest in ("namespace", "agent", "runner", "reaper"):
        for document in YAML(typ="safe", pure=True).load_all((RBAC / f"{manifest}.yaml").read_text(encoding="utf-8")):
            metadata = document["metadata"]
            if document["kind"] == "Namespace":
                metadata["name"] = namespace
            if metadata.get("namespace") == "gameday":
                metadata["namespace"] = namespace
            # What is bound beyond the namespace is bound to our account as well as to everybody else's.
            if document["kind"].endswith("Binding") and metadata.get("namespace") != namespace:
                metadata["name"] += f"-{namespace}"
            for subject in document.get("subjects", ()):
                subject["namespace"] = namespace
            if document["kind"] != "ClusterRole":
                items.append(document)
    return items


def _create(cluster: RehearsalCluster, path: str, body: dict[str, Any]) -> dict[str, Any]:
    with seeding(cluster.admin_kubeconfig) as seeder:
        return seeder._create(path, body)
