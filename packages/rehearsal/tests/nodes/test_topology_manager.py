"""A virtual kubelet whose Topology Manager admits only what one NUMA node can serve."""

from __future__ import annotations

from typing import Any

import pytest

from gameday.cluster.manifests import GpuPodTemplate, misaligned_pod
from gameday.errors import PodRejectedError
from gameday_rehearsal.nodes.devices import GpuDevices, GpuHolder
from gameday_rehearsal.nodes.numa import POLICY_ANNOTATION, exclusive_cpus
from tests.rehearsal.nodes.conftest import Cluster, eventually

NODE = "gpu-node-1"
TEMPLATE = GpuPodTemplate(image="pause:1", priority_class="", tolerated_taint_keys=())
HOLDER = GpuHolder("uid", "ns", "p", "gpu")
CPUS_OF_ONE_NODE = 112


def devices() -> GpuDevices:
    return GpuDevices(8, lambda gpu: True, lambda gpu, holder: None)


@pytest.mark.parametrize(("gpus", "cpus"), [(5, 1), (1, CPUS_OF_ONE_NODE + 1)])
def test_what_needs_both_numa_nodes_is_rejected_and_keeps_no_gpu(gpus: int, cpus: int) -> None:
    offered = devices()
    with pytest.raises(PodRejectedError) as rejected:
        offered.allocate([(HOLDER, gpus)], {"gpu": cpus})
    assert rejected.value.reason == "TopologyAffinityError"
    assert offered.held_by("uid") == []


def test_gpus_come_from_one_numa_node_although_lower_ones_are_free() -> None:
    offered = devices()
    offered.allocate([(GpuHolder("other", "ns", "o", "c"), 3)])
    offered.allocate([(HOLDER, 4)], {"gpu": CPUS_OF_ONE_NODE})
    assert offered.held_by("uid") == [4, 5, 6, 7]


def test_without_the_policy_a_pod_takes_gpus_of_both() -> None:
    offered = devices()
    offered.allocate([(HOLDER, 5)])
    assert offered.held_by("uid") == [0, 1, 2, 3, 4]


def spec(limits: dict[str, str], requests: dict[str, str] | None = None) -> dict[str, Any]:
    return {"containers": [{"name": "gpu", "resources": {"limits": limits, "requests": requests or {}}}]}


def test_only_whole_cpus_of_a_guaranteed_pod_are_exclusive() -> None:
    memory = {"memory": "1Gi"}
    assert exclusive_cpus(misaligned_pod("p", run_id="r", node=NODE, template=TEMPLATE, gpus=1, cpus=3)["spec"]) == {
        "gpu": 3
    }
    assert exclusive_cpus(spec({"cpu": "3", **memory})) == {"gpu": 3}
    assert exclusive_cpus(spec({"cpu": "1500m", **memory})) == {}
    assert exclusive_cpus(spec({"cpu": "3", **memory}, {"cpu": "2"})) == {}
    assert exclusive_cpus(spec({"cpu": "3"})) == {}


@pytest.mark.slow
def test_the_annotated_node_rejects_the_pod_and_another_runs_it(cluster: Cluster) -> None:
    annotated = {"metadata": {"annotations": {POLICY_ANNOTATION: "single-numa-node"}}}
    headers = {"Content-Type": "application/merge-patch+json"}
    cluster.http.patch(f"/api/v1/nodes/{NODE}", json=annotated, headers=headers).raise_for_status()

    def status(node: str) -> dict[str, Any]:
        pod = misaligned_pod("misaligned", run_id="r", node=node, template=TEMPLATE, gpus=3, cpus=1)
        pod["spec"]["nodeName"] = node
        cluster.create(pod)
        found = eventually(
            lambda: (
                (seen := cluster.pod("misaligned")) and seen["status"].get("phase") in ("Running", "Failed") and seen
            ),
            "admitted or not",
        )
        cluster.delete("misaligned")
        cluster.gone("misaligned")
        return dict(found["status"])

    # The kubelet receives the annotation and pods by two watches: a pod may come first.
    rejected = eventually(lambda: (seen := status(NODE))["phase"] == "Failed" and seen, "a rejection")
    assert rejected["reason"] == "TopologyAffinityError"
    assert rejected["message"] == "Pod was rejected: Resources cannot be allocated with Topology locality"
    assert status("gpu-node-2")["phase"] == "Running"
