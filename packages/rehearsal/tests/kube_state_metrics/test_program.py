"""The stand-in, and the real program where PATH has it, as processes beside an API server."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gameday.processes.ports import HeldPorts
from gameday_rehearsal.seed import seeding
from tests.cluster.servers.conftest import eventually
from tests.rehearsal.kube_state_metrics.test_exposition import HERE, facts
from tests.rehearsal.test_guest import api
from tests.support.world import World

REAL = shutil.which("kube-state-metrics")
REAL_ONLY = pytest.mark.skipif(REAL is None, reason="no kube-state-metrics on PATH")
pytestmark = pytest.mark.slow


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(tmp_path)
    try:
        yield found
    finally:
        found.end()


@pytest.fixture(params=["stand-in", pytest.param("real", marks=REAL_ONLY)])
def url(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> Iterator[str]:
    """The metrics of one of the two, which runs under the account that a rehearsal gives it."""
    with seeding(world.admin_kubeconfig) as seeder:
        kubeconfig = seeder.kube_state_metrics_kubeconfig(tmp_path / "kube-state-metrics.kubeconfig")
    stand_in = [sys.executable, "-m", "gameday_rehearsal.kube_state_metrics"]
    with HeldPorts(2) as ports:
        port, itself = ports.numbers
        loopback = ["--host=127.0.0.1", "--telemetry-host=127.0.0.1", f"--telemetry-port={itself}"]
        argv = stand_in if request.param == "stand-in" else [str(REAL), "--resources=nodes", *loopback]
        process = subprocess.Popen([*argv, f"--kubeconfig={kubeconfig}", f"--port={port}"])
        try:
            yield f"http://127.0.0.1:{port}/metrics"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(10)


def shown(url: str) -> str:
    """The page; empty while nobody serves it."""
    try:
        return httpx.get(url, trust_env=False).text
    except httpx.TransportError:
        return ""


def test_what_others_write_to_nodes_is_seen_by_one_watch(url: str, world: World) -> None:
    nodes = json.loads((HERE / "nodes.json").read_text())
    expected = facts(text_string_to_metric_families((HERE / "kube-state-metrics.txt").read_text()))

    def families() -> dict[str, object]:
        found = facts(text_string_to_metric_families(shown(url)))
        return {name: found.get(name) for name in expected}

    with api(world.admin_kubeconfig) as http:

        def taint(node: str, taints: list[dict[str, str]] | None) -> None:
            patch = {"Content-Type": "application/merge-patch+json"}
            body = {"spec": {"taints": taints}}
            http.patch(f"/api/v1/nodes/{node}", json=body, headers=patch).raise_for_status()

        for node in nodes:
            http.post("/api/v1/nodes", json=node).raise_for_status()
            taint(node["metadata"]["name"], node.get("spec", {}).get("taints"))  # admission adds its own to a new node
        eventually(families, expected.__eq__)
        taint("plain", [{"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule"}])
        eventually(lambda: shown(url), lambda text: faulty(text) == {"plain", "taken-out"})
        http.delete("/api/v1/nodes/plain").raise_for_status()
        eventually(lambda: shown(url), lambda text: faulty(text) == {"taken-out"} and '"plain"' not in text)


def faulty(text: str) -> set[str]:
    """The nodes that are shown with the taint."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    taints = (sample.labels for sample in samples if sample.name == "kube_node_spec_taint")
    return {labels["node"] for labels in taints if labels["key"] == "trainy.konduktor.ai/faulty"}
