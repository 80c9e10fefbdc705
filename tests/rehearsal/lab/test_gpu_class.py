"""The real scheduler places a gang by the label of GPU classes, with the node affinity that docs/fleet.md shows."""

from __future__ import annotations

import pytest

from gameday.cluster.gpu_class import GPU_CLASS_LABEL
from tests.fleet.builders import documented
from tests.rehearsal.lab.nodes import GPUS, Fleet
from tests.rehearsal.nodes.conftest import simulated

pytestmark = pytest.mark.lab

CLASSES = {"gpu-node-1": "slow", "gpu-node-2": "slow", "gpu-node-3": "typical", "gpu-node-4": "fast"}


def places_of_gang(fleet: Fleet, name: str) -> set[str]:
    """The nodes of as many pods of one GPU each as a node has GPUs, placed and taken away again."""
    (affinity,) = documented("### Node affinity")
    pods = [simulated(f"{name}-{rank}", "", gpus=1) for rank in range(GPUS)]
    for pod in pods:
        del pod["spec"]["nodeName"]
        pod["spec"] |= affinity
    fleet.apply(*pods)
    names = [pod["metadata"]["name"] for pod in pods]
    places = {fleet.phase(one, "Running")["spec"]["nodeName"] for one in names}
    fleet.remove(*names)
    return places


def test_with_classes_a_gang_lands_on_the_fast_node_and_without_it_does_not(fleet: Fleet) -> None:
    assert len(places_of_gang(fleet, "unlabelled")) > 1
    for node, value in CLASSES.items():
        fleet.plane.kubectl("label", "node", node, f"{GPU_CLASS_LABEL}={value}")
    try:
        assert places_of_gang(fleet, "labelled") == {"gpu-node-4"}
    finally:
        for node in CLASSES:
            fleet.plane.kubectl("label", "node", node, f"{GPU_CLASS_LABEL}-")
