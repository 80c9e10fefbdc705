"""The topology-aware scheduler and the nodes' updaters, on a lab that can do without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.cluster.lab_control import SOCKET, configure_lab
from gameday.plan.rehearsal import TOPOLOGY_SCHEDULER
from gameday_rehearsal.lab.settings import LabSettings
from tests.rehearsal.lab.nodes import Fleet, Json, eventually
from tests.rehearsal.lab.plane import running
from tests.rehearsal.nodes.conftest import simulated

SCHEDULER = "kube-scheduler-topology"


def pod(name: str, gpus: int) -> Json:
    made = simulated(name, "", gpus=gpus)
    del made["spec"]["nodeName"]
    made["spec"]["schedulerName"] = TOPOLOGY_SCHEDULER
    return made


def free(fleet: Fleet) -> list[str]:
    """Return the free GPUs of each zone of the only node."""
    found = fleet.plane.kubectl("get", "noderesourcetopologies", "gpu-node-1", "-o", "json", check=False)
    zones = fleet.get("noderesourcetopologies", "gpu-node-1")["zones"] if found else []
    return [zone["resources"][0]["available"] for zone in zones]


@pytest.mark.lab
def test_a_pod_waits_for_a_zone_with_room_and_an_arm_without_zones_has_none(tmp_path: Path) -> None:
    with running(tmp_path / "plane", LabSettings(topology=True)) as plane:
        fleet = Fleet(plane, tmp_path, "--nodes", "1", "--topology-interval", "1")
        try:
            for name in ("a", "b", "c"):  # of four GPUs in two zones
                fleet.apply(pod(name, 1))
                fleet.phase(name, "Running")
            fleet.remove("a")
            eventually(lambda: free(fleet) == ["1", "1"], "the updater writes that each zone has a GPU left")
            fleet.apply(pod("wide", 2))
            waiting = eventually(lambda: fleet.conditions("pod", "wide").get("PodScheduled"), "the pod was looked at")
            assert waiting["reason"] == "Unschedulable"
            assert "cannot align" in waiting["message"]
            fleet.remove("b")
            fleet.phase("wide", "Running")

            configure_lab(plane.folder / SOCKET, {"topology": False})
            assert plane.components()[SCHEDULER]["held"]
            assert "noderesourcetopologies" not in plane.kubectl("api-resources", "-o", "name")
            configure_lab(plane.folder / SOCKET, {})
            eventually(lambda: free(fleet), "the updater begins anew")
            assert plane.components()[SCHEDULER]["pid"]
        finally:
            fleet.end()
