"""Installed detectors, by their profiles' marks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gameday_prove.images import image_with_shell
from gameday_prove.look import profiles
from gameday_prove.recognise import Found, holds_image, recognised
from gameday_prove.values import Installed, Workload

NPD = Workload(
    kind="DaemonSet",
    namespace="kube-system",
    name="npd",
    images=("mirror.example:5000/node-problem-detector/node-problem-detector:v0.8.20",),
    config_maps=("npd-config",),
    ready=3,
)
RULE = r"""{"pattern": "NVRM: Xid \\(.*\\): (46|48|79),.*"}"""


def workload(name: str, image: str = "example/any:1", **fields: Any) -> Workload:
    return Workload(kind="DaemonSet", namespace="ns", name=name, images=(image,), ready=1, **fields)


def found(*workloads: Workload, ready: Mapping[str, str] | None = None, **others: Any) -> Found:
    """All of these workloads have a ready pod on the node, unless `ready` says which."""
    on_node = {(one.namespace, one.name): "ready" for one in workloads}
    if ready is not None:
        on_node = {(one.namespace, one.name): ready[one.name] for one in workloads if one.name in ready}
    fields: dict[str, Any] = {"labels": {}, "conditions": frozenset(), "config": lambda _: RULE} | others
    return Found(workloads=workloads, on_node=on_node, **fields)


def names(here: Found, *named: str) -> list[str]:
    return [one.detector for one in recognised(profiles(), here, named)]


def only(here: Found) -> Installed:
    (one,) = recognised(profiles(), here)
    return one


@pytest.mark.parametrize(
    ("image", "wanted", "fits"),
    [
        ("node-problem-detector", "node-problem-detector", True),
        ("a:5000/b/node-problem-detector:1@sha256:0", "node-problem-detector", True),
        ("a:5000/b/node-problem-detector", "node-problem-detector", True),
        ("a/not-node-problem-detector:1", "node-problem-detector", False),
        ("public.ecr.aws/karpenter/controller:1", "karpenter/controller", True),
        ("controller:1", "karpenter/controller", False),
    ],
)
def test_an_image_is_known_by_the_end_of_its_name(image: str, wanted: str, fits: bool) -> None:
    assert holds_image([image], wanted) is fits


def test_a_detector_is_found_by_its_image_and_sees_the_node() -> None:
    one = only(found(NPD))
    assert (one.detector, one.found_by, one.blind) == ("node-problem-detector", "DaemonSet kube-system/npd", ())


def test_a_config_without_the_pattern_makes_it_blind() -> None:
    (why,) = only(found(NPD, config=lambda _: '{"pattern": "task blocked"}')).blind
    assert "holds 'NVRM: Xid'" in why


def test_a_config_that_cannot_be_read_accuses_nobody() -> None:
    assert only(found(NPD, config=lambda _: None)).blind == ()


def test_a_selector_that_misses_the_node_is_named() -> None:
    elsewhere = NPD.model_copy(update={"node_selector": {"pool": "cpu"}})
    (why,) = only(found(elsewhere, ready={})).blind
    assert why == "DaemonSet kube-system/npd has no pod on this node (its nodeSelector is pool=cpu)"


def test_a_pod_that_is_not_ready_is_named() -> None:
    (why,) = only(found(NPD, ready={"npd": "CrashLoopBackOff"})).blind
    assert why.endswith("is not ready: CrashLoopBackOff")


def test_pods_that_cannot_be_listed_accuse_nobody() -> None:
    assert only(found(NPD, ready={}, pods_known=False)).blind == ()


def test_nvsentinel_is_one_detector_with_quarantine_or_without() -> None:
    monitor = workload("syslog", "ghcr.io/nvidia/nvsentinel/syslog-health-monitor:v1.31.0")
    writer = workload("connectors", "ghcr.io/nvidia/nvsentinel/platform-connectors:v1.31.0")
    quarantine = workload("quarantine", "ghcr.io/nvidia/nvsentinel/fault-quarantine:v1.31.0")
    assert names(found(monitor, writer)) == ["nvsentinel-kernel-log"]
    assert names(found(monitor, writer, quarantine)) == ["nvsentinel"]
    (why,) = only(found(writer, quarantine)).blind
    assert "nvsentinel/syslog-health-monitor, which it needs" in why


def test_a_controller_without_a_shipper_on_the_node_is_blind() -> None:
    controller, shipper = workload("gameday-node-health-7"), workload("dmesg")
    assert only(found(controller, shipper)).blind == ()
    (why,) = only(found(controller, shipper, ready={"gameday-node-health-7": "ready"})).blind
    assert "dmesg has no pod on this node" in why


def test_karpenter_counts_only_with_node_repair() -> None:
    agent = workload("agent", "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/eks-node-monitoring-agent:v1")
    image = "public.ecr.aws/karpenter/controller:1.9"
    with_it = workload("karpenter", image, words="FEATURE_GATES=NodeRepair=true,StaticCapacity=false")
    without = workload("karpenter", image, words="FEATURE_GATES=NodeRepair=false")
    assert names(found(agent, with_it)) == ["eks-node-monitoring-agent", "karpenter-node-repair"]
    assert names(found(agent, without)) == ["eks-node-monitoring-agent"]


def test_what_runs_outside_the_cluster_is_found_by_labels_and_conditions() -> None:
    assert names(found(labels={"cloud.google.com/gke-nodepool": "gpus"})) == ["gke-node-auto-repair"]
    azure = {"kubernetes.azure.com/cluster": "x"}
    assert names(found(labels=azure)) == ["aks-node-auto-repair"]
    both = names(found(labels=azure, conditions=frozenset({"XIDErrors"})))
    assert both == ["aks-gpu-health", "aks-node-auto-repair"]


def test_a_named_detector_is_there_by_the_users_word() -> None:
    (one,) = recognised(profiles(), found(), ["gpud"])
    assert (one.detector, one.named) == ("gpud", True)
    (one,) = recognised(profiles(), found(NPD), ["node-problem-detector"])
    assert not one.named


def test_every_profile_says_how_it_is_recognised() -> None:
    assert [one.name for one in profiles() if one.recognize is None] == []


def test_an_image_with_a_shell_is_chosen_and_a_distroless_one_is_not() -> None:
    names = [
        ["nvcr.io/nvidia/k8s/dcgm-exporter@sha256:1", "nvcr.io/nvidia/cuda:12.6.3-base-ubi9-distroless"],
        ["registry.k8s.io/pause:3.10"],
        ["docker.io/library/busybox@sha256:2", "docker.io/library/busybox:1.36"],
        ["nvcr.io/nvidia/cuda:12.6.3-base-ubi9"],
    ]
    assert image_with_shell(names) == "docker.io/library/busybox:1.36"
    assert image_with_shell(names[:2]) == ""
