"""The real scheduler places a gang by the label of GPU classes, with the node affinity that docs/fleet.md shows."""

from __future__ import annotations

import pytest

from gameday.values.gpu_class import GPU_CLASS_LABEL
from tests.fleet.builders import documented
from tests.rehearsal.lab.nodes import GPUS, NODES, Fleet
from tests.rehearsal.nodes.conftest import simulated

pytestmark = pytest.mark.lab


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


def test_a_gang_lands_where_the_class_is_fast_and_not_where_it_landed_without(fleet: Fleet) -> None:
    without = places_of_gang(fleet, "unlabelled")
    fast = min({f"gpu-node-{number}" for number in range(1, NODES + 1)} - without)
    classes = {fast: "fast", **dict.fromkeys(without, "slow")}
    for node, value in classes.items():
        fleet.plane.kubectl("label", "node", node, f"{GPU_CLASS_LABEL}={value}")
    try:
        assert places_of_gang(fleet, "labelled") == {fast}
    finally:
        for node in classes:
            fleet.plane.kubectl("label", "node", node, f"{GPU_CLASS_LABEL}-")
