"""Which pods leave a target, as its watch shows them: a drain must take all that it should and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client

from gameday.cluster.gpu_pods import gpu_pod
from gameday.run.drain import pods_to_drain
from tests.guard.observations import FakeRun, node, plan, pod, profile


def names(run: FakeRun) -> set[str]:
    return {found.name for found in pods_to_drain(run, "n0")}  # type: ignore[arg-type]


def repaired_by(action: str, *pods: client.V1Pod) -> FakeRun:
    run = FakeRun(plan(recover={"remediation": action}), profile(), node("n0"))
    run.nodes.pods["n0"] = list(pods)
    return run


def controlled(found: client.V1Pod) -> client.V1Pod:
    found.metadata.owner_references[0].controller = True
    return found


@pytest.mark.parametrize(("action", "leave"), [("gpu-reset", {"train"}), ("reboot", {"train", "web"})])
def test_a_reboot_drains_what_its_controllers_start_elsewhere(action: str, leave: set[str]) -> None:
    exporter = controlled(pod("exporter", gpus=0, owner="DaemonSet"))
    mirror = controlled(pod("kube-proxy", gpus=0, owner="Node"))
    mirror.metadata.annotations = {"kubernetes.io/config.mirror": "x"}
    alone, web = pod("alone", gpus=0), controlled(pod("web", gpus=0, owner="ReplicaSet"))
    assert names(repaired_by(action, controlled(pod("train")), web, alone, exporter, mirror)) == leave


def test_pods_that_have_ended_leave_nothing_to_drain() -> None:
    ended = pod("done")
    ended.status.phase = "Succeeded"
    assert names(repaired_by("gpu-reset", ended)) == set()


@pytest.mark.parametrize(
    ("limits", "gpus", "holds"),
    [
        ({"nvidia.com/gpu": "2"}, 2, True),
        ({"nvidia.com/gpu.shared": "1"}, 0, True),
        ({"nvidia.com/mig-1g.10gb": "3", "nvidia.com/mig-2g.20gb": "1"}, 0, True),
        ({"nvidia.com/gpumem": "3000", "cpu": "4"}, 0, False),
    ],
)
def test_a_pod_with_a_part_of_a_gpu_holds_gpus(limits: dict[str, Any], gpus: int, holds: bool) -> None:
    """And takes none of the whole ones that the node offers."""
    found = pod("p")
    found.spec.containers[0].resources.limits = limits
    assert (gpu_pod(found).gpus, gpu_pod(found).holds_gpu) == (gpus, holds)
