"""Nodes without GPUs, for API clients: their Node objects, and what of the GPU nodes they leave as it was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gameday_rehearsal.nodes.logship import LogShipper
from gameday_rehearsal.nodes.node_object import NodeFacts, machine_status, node_object
from gameday_rehearsal.nodes.virtual_nodes import Settings, VirtualNodes

FACTS = NodeFacts(index=2, name="client-1", gpus=0, port=None, version="v1.37.0")


def test_a_client_node_has_its_label_its_taint_and_nothing_of_nvidias() -> None:
    node = node_object(FACTS, 0, machine_status(FACTS, "boot", 0))
    labels = node["metadata"]["labels"]
    assert labels["gameday.dev/api-clients"] == "true"
    assert "gameday.dev/opt-in" not in labels
    assert node["spec"]["taints"] == [{"key": "gameday.dev/api-clients", "value": "true", "effect": "NoSchedule"}]
    assert "nvidia" not in str(node)


def test_client_nodes_change_nothing_of_the_gpu_nodes(tmp_path: Path) -> None:
    def nodes(clients: int) -> VirtualNodes:
        settings = Settings(2, 4, "gpu-node", 0.01, tmp_path, client_nodes=clients)
        return VirtualNodes(settings, LogShipper(None))

    def series(of: VirtualNodes) -> list[str]:
        pages = b"".join(of.exposition.render()).decode().splitlines()
        return [line.rpartition(" ")[0] for line in pages]

    without, with_clients = nodes(0), nodes(2)
    assert list(with_clients.machines) == ["gpu-node-1", "gpu-node-2", "client-1", "client-2"]
    assert with_clients.fleet.shape == without.fleet.shape
    assert series(with_clients) == series(without)
    assert with_clients.machines["client-2"].samples() == []


@pytest.mark.slow
def test_more_client_nodes_than_a_machine_can_use_are_refused() -> None:
    argv = [sys.executable, "-m", "gameday_rehearsal.nodes", "--kubeconfig", "none", "--client-nodes", "101"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "--client-nodes is 0 to 100" in done.stderr
