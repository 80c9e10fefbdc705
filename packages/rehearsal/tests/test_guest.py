"""A guest on a whole cluster: it sees a node's log, acts by its own account, and is gone with the cluster."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gameday.cluster.profile import load_profile
from gameday.host.virtual import VirtualHost
from gameday_rehearsal.blueprint import Blueprint, Detector, Size
from gameday_rehearsal.cluster import RehearsalCluster
from gameday_rehearsal.folder import STATE
from gameday_rehearsal.guests.load import load_guest
from gameday_rehearsal.seed import seeding
from kubesim.kubeconfig import Kubeconfig
from tests.cluster.servers.conftest import eventually
from tests.rehearsal.processes import naming
from tests.rehearsal.seer import TAINT
from tests.support.world import World

SEER = Path(__file__).parent / "seer.py"


@contextmanager
def api(kubeconfig: Path) -> Iterator[httpx.Client]:
    """The API server under one kubeconfig."""
    found = Kubeconfig.load(kubeconfig)
    headers = {"Authorization": f"Bearer {found.token}"}
    with httpx.Client(base_url=found.server, headers=headers, verify=found.tls or True, trust_env=False) as http:
        yield http


def taints(kubeconfig: Path, node: str) -> list[dict[str, str]]:
    with api(kubeconfig) as http:
        return http.get(f"/api/v1/nodes/{node}").raise_for_status().json()["spec"].get("taints", [])


def guest_file(folder: Path) -> Path:
    path = folder / "seer.yaml"
    document = {
        "apiVersion": "gameday/v1",
        "kind": "Guest",
        "name": "seer",
        "version": "1",
        "detector": "konduktor",
        "command": [sys.executable, "-I", "-S", str(SEER), "{node}", "{kmsg}"],
        "says": "is unhealthy",
    }
    path.write_text(json.dumps(document))
    return path


NODE = {"metadata": {"name": "n"}}
OWN = "/api/v1/namespaces/gameday-guest/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/gameday-guest/leases"
EVENT = {
    "metadata": {"generateName": "e"},
    "involvedObject": {"kind": "Node", "name": "n"},
    "reason": "XidHardware",
    "type": "Warning",
}
ASKED: list[tuple[str, str, dict[str, Any] | None, int]] = [
    ("GET", "/api/v1/pods", None, 200),
    ("GET", "/api/v1/nodes/n", None, 200),
    ("PATCH", "/api/v1/nodes/n", {"spec": {"unschedulable": True}}, 200),
    ("PATCH", "/api/v1/nodes/n/status", {"status": {"conditions": []}}, 200),
    ("POST", "/api/v1/namespaces/default/events", EVENT, 201),
    ("POST", OWN, {"metadata": {"name": "mine"}}, 201),
    ("POST", LEASES, {"metadata": {"name": "mine"}}, 201),
    ("GET", "/api/v1/namespaces/gameday/configmaps", None, 403),
    ("GET", "/api/v1/secrets", None, 403),
    ("GET", "/apis/example.com/v1/things", None, 403),
    ("DELETE", "/api/v1/nodes/n", None, 403),
    ("POST", "/api/v1/namespaces/default/pods", NODE, 403),
    ("POST", "/api/v1/namespaces/default/pods/p/eviction", NODE, 403),
]


@pytest.mark.slow
def test_its_account_may_do_what_detectors_ask_for_and_no_more(tmp_path: Path) -> None:
    world = World(tmp_path)
    try:
        with seeding(world.admin_kubeconfig) as seeder:
            kubeconfig = seeder.guest_kubeconfig(tmp_path / "guest.kubeconfig")
        with api(world.admin_kubeconfig) as http:
            http.post("/api/v1/nodes", json=NODE).raise_for_status()
        answers = []
        with api(kubeconfig) as http:
            for method, path, body, _ in ASKED:
                kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
                answer = http.request(method, path, json=body, headers={"Content-Type": kind})
                answers.append((method, path, body, answer.status_code))
        assert answers == ASKED
    finally:
        world.end()


@pytest.mark.slow
def test_a_guest_watches_and_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    guest = load_guest(str(guest_file(tmp_path)))
    with RehearsalCluster(
        Blueprint(folder, Size(nodes=2, gpus=1), Detector.OFF, prefect=False, guest=guest)
    ) as cluster:
        profile = load_profile(cluster.profile)
        assert profile.guest
        assert (profile.guest.name, profile.guest.says, profile.detector) == ("seer", "is unhealthy", "konduktor")
        state = json.loads((folder / STATE).read_text())
        assert (state["detector"], state["kube_state_metrics"]) == ("seer (guest)", "stand-in")

        def shown() -> dict[str, Any]:
            return httpx.get(profile.guest.url, trust_env=False).raise_for_status().json()["instances"]

        eventually(shown, lambda found: all(one["state"] == "running" for one in found.values()))
        hosts = cluster.child("nodes").ready["hosts"]
        fallen = "<3>NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."
        VirtualHost(f"{hosts}/gpu-node-2").write_kernel_log(fallen)
        admin = cluster.admin_kubeconfig
        assert TAINT.items() <= eventually(lambda: taints(admin, "gpu-node-2"), bool)[0].items()
        assert taints(admin, "gpu-node-1") == []
        # A guest's writes are metrics, by the API server's own word.
        shown_taint = 'kube_node_spec_taint{effect="NoSchedule",key="trainy.konduktor.ai/faulty",node="gpu-node-2"'
        metrics = cluster.urls["kube-state-metrics"]
        eventually(lambda: httpx.get(metrics, trust_env=False).text, lambda text: shown_taint in text)
        output = httpx.get(f"{profile.guest.url}/gpu-node-2/output", trust_env=False).text
        assert "gpu-node-2 is unhealthy: 11," in output

        guests = folder / "kernel-logs" / "gpu-node-1"  # which their command lines name
        assert naming(guests)
        process = cluster.child("nodes").process
        assert process
        process.send_signal(signal.SIGKILL)
        eventually(lambda: naming(guests), lambda found: not found)
    assert naming(tmp_path) == set()
