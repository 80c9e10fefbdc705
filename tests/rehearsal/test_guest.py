"""A guest on a whole cluster: it sees a node's log, acts by its own account, and is gone with the cluster."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from gameday.cluster.profile import load_profile
from gameday.guests.load import load_guest
from gameday.rehearsal.cluster import Detector, RehearsalCluster, Size
from gameday.rehearsal.folder import STATE
from kubesim.kubeconfig import Kubeconfig
from tests.cluster.servers.conftest import eventually
from tests.rehearsal.processes import naming
from tests.rehearsal.seer import TAINT

SEER = Path(__file__).parent / "seer.py"


class Api:
    """The API server under one kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        loaded = Kubeconfig.load(kubeconfig)
        self._http = httpx.Client(
            base_url=loaded.server,
            headers={"Authorization": f"Bearer {loaded.token}"},
            verify=loaded.tls or True,
            trust_env=False,
        )

    def status(self, method: str, path: str, **body: Any) -> int:
        return self._http.request(method, path, **body).status_code

    def taints(self, node: str) -> list[dict[str, str]]:
        return self._http.get(f"/api/v1/nodes/{node}").raise_for_status().json()["spec"].get("taints", [])


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


@pytest.mark.slow
def test_a_guest_watches_and_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    guest = load_guest(str(guest_file(tmp_path)))
    with RehearsalCluster(folder, Size(nodes=2, gpus=1), Detector.OFF, prefect=False, guest=guest) as cluster:
        profile = load_profile(cluster.profile)
        assert profile.guest
        assert (profile.guest.name, profile.guest.says, profile.detector) == ("seer", "is unhealthy", "konduktor")
        assert json.loads((folder / STATE).read_text())["detector"] == "seer (guest)"

        def shown() -> dict[str, Any]:
            return httpx.get(profile.guest.url, trust_env=False).raise_for_status().json()["instances"]

        eventually(shown, lambda found: all(one["state"] == "running" for one in found.values()))
        hosts = profile.guest.url.replace("/guests", "/hosts")
        record = {"record": "<3>NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."}
        httpx.post(f"{hosts}/gpu-node-2/kernel-log", json=record, trust_env=False).raise_for_status()
        api = Api(cluster.admin_kubeconfig)
        assert TAINT.items() <= eventually(lambda: api.taints("gpu-node-2"), bool)[0].items()
        assert api.taints("gpu-node-1") == []
        output = httpx.get(f"{profile.guest.url}/gpu-node-2/output", trust_env=False).text
        assert "gpu-node-2 is unhealthy: 11," in output

        own = Api(folder / "guest.kubeconfig")
        assert own.status("GET", "/api/v1/pods") == 200
        assert own.status("GET", "/api/v1/namespaces/gameday-guest/configmaps") == 200
        assert own.status("GET", "/api/v1/namespaces/gameday/configmaps") == 403
        assert own.status("GET", "/api/v1/secrets") == 403
        assert own.status("DELETE", "/api/v1/nodes/gpu-node-1") == 403
        assert own.status("POST", "/api/v1/namespaces/training/pods", json={"metadata": {"name": "x"}}) == 403

        guests = folder / "kernel-logs" / "gpu-node-1"  # which their command lines name
        assert naming(guests)
        process = cluster.child("nodes").process
        assert process
        process.send_signal(signal.SIGKILL)
        eventually(lambda: naming(guests), lambda found: not found)
    assert naming(tmp_path) == set()
