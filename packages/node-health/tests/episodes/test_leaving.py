"""The pods that may hold a faulty GPU: only one that is shown to be on others stays."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client

from gameday.agent.task import GpuPodsNote
from gameday_health.episodes.leaving import Leaving, of_faulty_gpus
from gameday_health.episodes.model import Scope
from tests.health.episodes.worlds import OTHER_PCI, PCI

THIRD = "0000:9a:00"


def pod(uid: str, gpus: int = 1, resource: str = "nvidia.com/gpu", **spec: Any) -> client.V1Pod:
    resources = client.V1ResourceRequirements(limits={resource: str(gpus)} if gpus else {})
    containers = [client.V1Container(name="main", resources=resources)]
    metadata = client.V1ObjectMeta(namespace="default", name=uid, uid=uid, labels={})
    return client.V1Pod(metadata=metadata, spec=client.V1PodSpec(containers=containers, **spec))


def look(**pods: str) -> list[GpuPodsNote]:
    """Notes of three GPUs; a keyword is a pod's uid, and its value the GPUs that it has open."""
    return [
        GpuPodsNote(gpu=gpu, pci=pci, pods=tuple(uid for uid, opened in pods.items() if pci in opened.split()))
        for gpu, pci in enumerate((PCI, OTHER_PCI, THIRD))
    ]


def names(choice: Leaving, *pods: client.V1Pod) -> list[str]:
    return [one.uid for one in choice.of(pods)]


def test_a_pod_that_has_open_as_many_other_gpus_as_it_holds_stays() -> None:
    choice = of_faulty_gpus([PCI], look(victim=PCI, other=OTHER_PCI, two=f"{OTHER_PCI} {THIRD}"))
    pods = [pod("victim"), pod("other"), pod("two", 2), pod("none", 0)]
    assert names(choice, *pods) == ["victim"]
    assert [one.uid for one in choice.at_once(choice.of(pods))] == ["victim"]


@pytest.mark.parametrize(
    "unclear",
    [
        pod("idle"),
        pod("seen", 2),
        pod("seen", resource="nvidia.com/gpu.shared"),
        pod("seen", resource="nvidia.com/mig-1g.10gb"),
        pod("seen", resource_claims=[client.V1PodResourceClaim(name="gpu")]),
    ],
    ids=["opens none", "opens too few", "a share", "a slice", "a claim"],
)
def test_a_pod_that_may_hold_the_faulty_gpu_leaves_and_is_given_its_time(unclear: client.V1Pod) -> None:
    choice = of_faulty_gpus([PCI], look(seen=OTHER_PCI))
    assert names(choice, unclear) == [unclear.metadata.uid]
    assert choice.at_once(choice.of([unclear])) == []


def test_a_privileged_pod_that_opens_more_than_it_holds_leaves() -> None:
    assert names(of_faulty_gpus([PCI], look(odd=f"{OTHER_PCI} {THIRD}")), pod("odd")) == ["odd"]


def test_where_the_agent_does_not_see_the_faulty_gpu_everybody_leaves() -> None:
    choice = of_faulty_gpus([PCI, "0000:ff:00"], look(victim=PCI, other=OTHER_PCI))
    assert names(choice, pod("victim"), pod("other")) == ["victim", "other"]
    assert choice.at_once(choice.of([pod("victim")])) == []
    assert names(of_faulty_gpus([PCI], []), pod("other")) == ["other"]


def test_each_of_several_faulty_gpus_counts() -> None:
    choice = of_faulty_gpus([PCI, THIRD], look(a=PCI, b=OTHER_PCI, c=THIRD))
    assert names(choice, pod("a"), pod("b"), pod("c")) == ["a", "c"]


def test_a_drain_of_the_whole_node_spares_nobody_with_gpus() -> None:
    assert names(Leaving(Scope.GPU_PODS), pod("a"), pod("none", 0)) == ["a"]
