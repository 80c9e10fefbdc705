"""500 virtual nodes on one real control plane: none of them is ever taken for dead."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.rehearsal.lab.nodes import Fleet, eventually
from tests.rehearsal.lab.plane import running

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(600)]
NODES = 500
# Twice node lifecycle's grace of 50 s, after which it marks a node Unknown whose Lease is not renewed.
REST_S = 100


def test_no_node_is_declared_dead_while_they_register_and_rest(tmp_path: Path) -> None:
    with running(tmp_path / "plane") as plane:
        fleet = Fleet(plane, tmp_path, "--nodes", str(NODES), "--tls-folder", str(plane.folder))
        try:
            began = eventually(lambda: (seen := since(fleet)) and len(seen) == NODES and seen, "all Ready", 300)
            time.sleep(REST_S)  # the time itself is what is tested
            assert since(fleet) == began
            dead = fleet.get("events", "-A", "--field-selector", "reason=NodeNotReady")["items"]
            assert [event["involvedObject"]["name"] for event in dead] == []
        finally:
            fleet.end()
        assert fleet.log.read_text() == ""


def since(fleet: Fleet) -> dict[str, str]:
    """Since when each node that is Ready is so."""
    found = {}
    for node in fleet.get("nodes")["items"]:
        for condition in node["status"]["conditions"]:
            if condition["type"] == "Ready" and condition["status"] == "True":
                found[node["metadata"]["name"]] = condition["lastTransitionTime"]
    return found
