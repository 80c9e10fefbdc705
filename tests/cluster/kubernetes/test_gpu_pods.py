"""The GPUs that a pod holds, and the reasons in its status."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from kubernetes import client

from gameday.cluster.gpu_pods import gpu_pod
from gameday.cluster.pods import pod_seen


def container(gpus: int, restart_policy: str | None = None) -> client.V1Container:
    limits = client.V1ResourceRequirements(limits={"nvidia.com/gpu": str(gpus)} if gpus else {})
    return client.V1Container(name="c", resources=limits, restart_policy=restart_policy)


def pod(spec: client.V1PodSpec, status: client.V1PodStatus | None = None) -> client.V1Pod:
    metadata = client.V1ObjectMeta(name="p", namespace="ns", uid="u")
    return client.V1Pod(metadata=metadata, spec=spec, status=status)


@pytest.mark.parametrize(
    ("containers", "first", "gpus"),
    [
        ([2, 1], [], 3),
        ([1], [container(4)], 4),
        ([0], [container(1)], 1),
        ([2], [container(1, "Always")], 3),
        ([0], [], 0),
    ],
    ids=["together", "init-needs-more", "init-only", "sidecar", "none"],
)
def test_gpus_are_counted_as_the_scheduler_counts(
    containers: list[int], first: list[client.V1Container], gpus: int
) -> None:
    found = gpu_pod(pod(client.V1PodSpec(containers=[container(one) for one in containers], init_containers=first)))
    assert (found.gpus, found.holds_gpu) == (gpus, gpus > 0)


def test_a_pod_with_a_resource_claim_counts_as_one_with_gpus() -> None:
    claim = client.V1PodResourceClaim(name="gpu", resource_claim_name="one-gpu")
    found = gpu_pod(pod(client.V1PodSpec(containers=[container(0)], resource_claims=[claim])))
    assert (found.gpus, found.holds_gpu) == (0, True)


def test_the_reason_of_a_disruption_is_read_from_the_status() -> None:
    disrupted = client.V1PodCondition(type="DisruptionTarget", status="True", reason="EvictionByEvictionAPI")
    evicted = pod(client.V1PodSpec(containers=[]), client.V1PodStatus(phase="Running", conditions=[disrupted]))
    evicted.spec.termination_grace_period_seconds = 600
    evicted.metadata.deletion_timestamp = datetime.now(UTC)
    found = gpu_pod(evicted)
    assert (found.terminating, found.disruption, found.grace_s) == (True, "EvictionByEvictionAPI", 600)
    calm = gpu_pod(pod(client.V1PodSpec(containers=[])))
    assert (calm.terminating, calm.disruption, calm.grace_s) == (False, "", 30)


def test_a_pod_that_was_placed_and_does_not_start_has_a_reason() -> None:
    waiting = client.V1ContainerState(
        waiting=client.V1ContainerStateWaiting(reason="ImagePullBackOff", message="Back-off pulling image")
    )
    status = client.V1ContainerStatus(name="c", image="i", image_id="", ready=False, restart_count=0, state=waiting)
    found = pod(
        client.V1PodSpec(node_name="n1", containers=[container(1)]),
        client.V1PodStatus(phase="Pending", container_statuses=[status]),
    )
    assert pod_seen(found, gone=False).why_not_running == "Pending on n1: ImagePullBackOff: Back-off pulling image"
