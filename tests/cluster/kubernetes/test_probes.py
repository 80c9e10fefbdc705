"""The GPU pods that show where work lands: they displace nobody, and tolerate every GPU pool's own taints."""

from __future__ import annotations

import pytest

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.manifests import GpuPodTemplate, gpu_canary, gpu_job, misaligned_pod
from gameday.errors import KubernetesError
from tests.support.world import NAMESPACE, World, unique

TEMPLATE = GpuPodTemplate("registry.example/pause:1", "gameday-probe", ("nvidia.com/gpu", "sku"))
TOLERATED = [{"key": "nvidia.com/gpu", "operator": "Exists"}, {"key": "sku", "operator": "Exists"}]


def test_a_canary_preempts_nobody(world: World, runner: Kubernetes) -> None:
    """Read the pod as admission stores it: the scheduler obeys priority and preemptionPolicy, not a class's name."""
    name = unique("canary")
    runner.create_pod(gpu_canary(name, run_id="r", node="n", template=TEMPLATE))
    spec = world.core.read_namespaced_pod(name, NAMESPACE).spec
    assert (spec.priority, spec.preemption_policy) == (-100, "Never")


def test_every_pod_for_the_scheduler_has_the_settings_of_the_template() -> None:
    canary = gpu_canary("c", run_id="r", node="n", template=TEMPLATE)["spec"]
    misaligned = misaligned_pod("m", run_id="r", node="n", template=TEMPLATE, gpus=3, cpus=1)["spec"]
    job = gpu_job("j", run_id="r", selector={"pool": "gpu"}, template=TEMPLATE)["spec"]["template"]["spec"]
    for spec in (canary, misaligned, job):
        assert spec["priorityClassName"] == TEMPLATE.priority_class
        assert spec["tolerations"] == TOLERATED
        assert spec["containers"][0]["image"] == TEMPLATE.image


def test_a_dry_run_reports_a_missing_priority_class_and_makes_nothing(world: World, runner: Kubernetes) -> None:
    name, elsewhere = unique("canary"), GpuPodTemplate("pause:1", "of-another-cluster", ())
    with pytest.raises(KubernetesError, match="no PriorityClass with name of-another-cluster was found") as refused:
        runner.create_pod(gpu_canary(name, run_id="r", node="n", template=elsewhere), dry_run=True)
    assert refused.value.status == 403
    runner.create_pod(gpu_canary(name, run_id="r", node="n", template=TEMPLATE), dry_run=True)
    assert name not in [pod.metadata.name for pod in world.core.list_namespaced_pod(NAMESPACE).items]
