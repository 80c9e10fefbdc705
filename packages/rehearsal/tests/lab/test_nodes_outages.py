"""Virtual nodes while the control plane crashes, on a control plane of their own."""

from __future__ import annotations

import os
import signal
import ssl
from pathlib import Path

import httpx
import pytest

from tests.rehearsal.lab.nodes import Fleet, eventually
from tests.rehearsal.lab.plane import Plane, running
from tests.rehearsal.nodes.conftest import simulated

pytestmark = pytest.mark.lab


def test_nodes_and_pods_outlive_the_api_server_and_etcd(tmp_path: Path) -> None:
    with running(tmp_path / "plane") as plane:
        fleet = Fleet(plane, tmp_path, "--nodes", "3", "--tls-folder", str(plane.folder))
        try:
            fleet.apply(simulated("steady", "gpu-node-1", policy="Always"))
            before = fleet.phase("steady", "Running")
            node_uid = fleet.get("node", "gpu-node-1")["metadata"]["uid"]
            for name in ("kube-apiserver", "etcd"):
                crash(plane, name)
            # A pod that comes now is seen, so the watch was resumed; the one of before was neither lost nor run twice.
            fleet.apply(simulated("after", "gpu-node-1"))
            fleet.phase("after", "Running")
            after = fleet.get("pod", "steady")
            assert after["metadata"]["uid"] == before["metadata"]["uid"]
            assert after["status"]["containerStatuses"] == before["status"]["containerStatuses"]
            assert len(fleet.get("nodes")["items"]) == 3
            assert fleet.get("node", "gpu-node-1")["metadata"]["uid"] == node_uid
            assert fleet.ready_status("gpu-node-1") == "True"
        finally:
            fleet.end()
        assert "Traceback" not in fleet.log.read_text()


def crash(plane: Plane, name: str) -> None:
    """Kill a component, and return when the API server serves again."""
    component = plane.components()[name]
    os.kill(component["pid"], signal.SIGKILL)
    eventually(lambda: plane.components()[name]["restarts"] > component["restarts"], f"{name} started again")
    eventually(lambda: ready(plane), "the API server ready")


def ready(plane: Plane) -> bool:
    tls = ssl.create_default_context(cafile=str(plane.folder / "ca.crt"))
    try:
        with httpx.Client(verify=tls, trust_env=False, timeout=2) as http:
            return http.get(plane.components()["kube-apiserver"]["ready_url"]).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False
