"""The doctor says how pods come by GPUs on this cluster, and what to write into the profile where they do not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.client import V1Container, V1EnvVar, V1ObjectMeta, V1Pod, V1PodSpec, V1Toleration

from gameday.cluster.operands import AWAY
from gameday.errors import KubernetesError
from gameday.guard.gpu_access import Way, gpu_access
from gameday_rehearsal.nodes.gpu_operator import GpuOperator, container_environment, deploy_labels
from gameday_rehearsal.nodes.in_process import ModelHost
from tests.guard.observations import node, plan, profile

RESET = {"recover": {"remediation": "gpu-reset"}}


class Admission:
    """An API server that knows these RuntimeClasses, and admits pods without making them."""

    def __init__(self, classes: tuple[str, ...], otherwise: str = "") -> None:
        self._classes = classes
        self._otherwise = otherwise

    def create_pod(self, manifest: dict[str, Any], *, dry_run: bool) -> str:
        assert dry_run
        name = manifest["spec"]["runtimeClassName"]
        if self._otherwise:
            raise KubernetesError("server", self._otherwise, "", status=403)
        if name not in self._classes:
            raise KubernetesError("server", f'pod rejected: RuntimeClass "{name}" not found', "", status=403)
        return ""


def ways(
    classes: tuple[str, ...] = (),
    labels: dict[str, str] | None = None,
    chosen: str | None = None,
    otherwise: str = "",
    operands: tuple[Any, ...] = (),
    **parts: Any,
) -> dict[str, Way]:
    there = SimpleNamespace(status=SimpleNamespace(node_info=SimpleNamespace(kubelet_version="v1.33.1")))
    run = SimpleNamespace(
        id="r",
        plan=plan(**parts),
        profile=profile().model_copy(update={"agent_runtime_class": chosen}),
        kubernetes=Admission(classes, otherwise),
        nodes=SimpleNamespace(
            now=lambda _: node("n0", labels or {}), object=lambda _: there, pods_on=lambda _: list(operands)
        ),
        record=SimpleNamespace(object_name=lambda purpose: f"gd-r-{purpose}"),
    )
    return {way.name: way for way in gpu_access(run, (SimpleNamespace(node="n0"),))}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("operator", "chosen", "ok", "words"),
    [
        (GpuOperator.NONE, None, True, "NVIDIA's runtime as the nodes' default"),
        (GpuOperator.RUNTIME_CLASS, "nvidia", True, "RuntimeClass nvidia"),
        (GpuOperator.CDI, "nvidia", True, "RuntimeClass nvidia"),
        (GpuOperator.CDI, None, None, "our pods do not name it"),
        (GpuOperator.NRI, None, None, "its NRI plugin"),
        (GpuOperator.NRI, "nvidia", False, "no RuntimeClass nvidia is there"),
    ],
)
def test_each_way_to_the_driver_is_named(
    operator: GpuOperator, chosen: str | None, ok: bool | None, words: str
) -> None:
    labels = {} if operator is GpuOperator.NONE else deploy_labels()
    way = ways(operator.runtime_classes, labels, chosen)["the driver in our pods"]
    assert (way.ok, words in way.detail, bool(way.fix)) == (ok, True, ok is not True)


OWN_GPUS = "a canary's own GPUs"
KUBELET = "the pod-resources API of the kubelet, v1.33.1"


def device_plugin(
    settings: dict[str, str], annotations: dict[str, str] | None = None, args: tuple[str, ...] = ()
) -> V1Pod:
    variables = [V1EnvVar(name=name, value=value) for name, value in settings.items()]
    container = V1Container(name="nvidia-device-plugin", args=list(args), env=variables)
    metadata = V1ObjectMeta(labels={"app": "nvidia-device-plugin-daemonset"}, annotations=annotations)
    return V1Pod(metadata=metadata, spec=V1PodSpec(containers=[V1Container(name="config-manager"), container]))


def own_gpus_by(operator: GpuOperator) -> str:
    """Return the line about a cluster with this way: its RuntimeClasses, and the device plugin's pod as it is there."""
    plugin = device_plugin(
        operator.device_plugin_settings, operator.device_plugin_annotations("nvidia-device-plugin") or None
    )
    way = ways(operator.runtime_classes, operands=(plugin,))[OWN_GPUS]
    assert way.ok is True
    return way.detail


@pytest.mark.parametrize("operator", GpuOperator)
def test_each_way_to_a_canarys_own_gpus_is_named(operator: GpuOperator) -> None:
    """Compare doctor's line with what the virtual kubelet of that way does."""
    detail, variable = own_gpus_by(operator), given_to_a_container(operator)
    by_variable = detail.startswith("by NVIDIA_VISIBLE_DEVICES, where")
    assert by_variable is (variable != "void")
    assert ("names UUIDs" in detail, "names indices" in detail) == (variable.startswith("GPU-"), variable == "1")
    assert ("NVIDIA_VISIBLE_DEVICES names none" in detail) is not by_variable
    assert ("NRI" in detail) is (operator is GpuOperator.NRI)
    assert KUBELET in detail


def given_to_a_container(operator: GpuOperator) -> str:
    """Return NVIDIA_VISIBLE_DEVICES of a container that was given GPU 1 of a virtual node."""
    gpu = ModelHost().machine.gpus[1]
    return container_environment(operator, {}, "canary", (gpu,))["NVIDIA_VISIBLE_DEVICES"]


def test_an_annotation_alone_is_no_nri_where_a_runtime_class_is_there() -> None:
    """Some versions of the operator annotate the device plugin's pod in any case."""
    asks = GpuOperator.NRI.device_plugin_annotations("nvidia-device-plugin")
    plugin = device_plugin(GpuOperator.CDI.device_plugin_settings, asks)
    assert "NRI" not in ways(GpuOperator.CDI.runtime_classes, operands=(plugin,))[OWN_GPUS].detail


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"CONFIG_FILE": "/config/config.yaml"}, "has a configuration file"),
        ({"DEVICE_LIST_STRATEGY": "envvar,cdi-annotations"}, "the runtime heeds one of them"),
    ],
)
def test_a_way_that_its_pod_does_not_tell_is_unknown(settings: dict[str, str], words: str) -> None:
    way = ways(operands=(device_plugin(settings),))[OWN_GPUS]
    assert way.ok is None and way.detail.startswith("cannot be told from outside: ")
    assert words in way.detail and f"A canary asks NVIDIA_VISIBLE_DEVICES, then {KUBELET}, then NVML" in way.detail


def test_a_node_without_a_known_device_plugin_leaves_it_unknown() -> None:
    other = V1Pod(metadata=V1ObjectMeta(labels=None), spec=V1PodSpec(containers=[V1Container(name="trainer")]))
    way = ways(operands=(other,))[OWN_GPUS]
    assert way.ok is None and "no pod on n0 is known to be its device plugin" in way.detail


@pytest.mark.parametrize(
    ("settings", "args", "ids"),
    [
        ({}, (), "UUIDs"),
        ({"DEVICE_ID_STRATEGY": "uuid"}, ("--device-id-strategy=index",), "indices"),
        ({"DEVICE_LIST_STRATEGY": "envvar", "CONFIG_FILE": "/config/config.yaml"}, (), "UUIDs or indices"),
        ({"DEVICE_LIST_STRATEGY": "cdi-cri"}, ("--device-list-strategy=envvar",), "UUIDs"),
    ],
)
def test_the_device_plugins_flag_comes_before_its_variable_and_that_before_its_file(
    settings: dict[str, str], args: tuple[str, ...], ids: str
) -> None:
    detail = ways(operands=(device_plugin(settings, args=args),))[OWN_GPUS].detail
    assert f"the device plugin names {ids}; else by {KUBELET}" in detail


@pytest.mark.parametrize(
    ("labels", "ok", "words"),
    [
        ({}, True, "none leaves"),
        (deploy_labels(), True, "device-plugin, dcgm, dcgm-exporter, gpu-feature-discovery leave n0"),
        ({"nvidia.com/gpu.deploy.dcgm": AWAY}, True, "dcgm leave n0"),
        ({"nvidia.com/gpu.deploy.dcgm": "paused-for-driver-upgrade"}, False, "somebody else"),
    ],
)
def test_a_plan_with_a_reset_has_a_line_about_the_operands(labels: dict[str, str], ok: bool, words: str) -> None:
    way = ways(labels=labels, **RESET)["operands before a GPU reset"]
    assert (way.ok, words in way.detail) == (ok, True)
    assert "operands before a GPU reset" not in ways(labels=labels)


AS_SHIPPED = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
"""The toleration of the GPU operator's operands (docs/sources.md, GPU operator)."""
FAULTY = {"key": "trainy.konduktor.ai/faulty", "value": "true", "within": "15s"}
RETURN = "operands return to a tainted node"


def _operand(*tolerations: dict[str, str]) -> V1Pod:
    selector = {"nvidia.com/gpu.deploy.device-plugin": "true"}
    tolerated = [V1Toleration(**one) for one in tolerations]
    return V1Pod(metadata=V1ObjectMeta(), spec=V1PodSpec(containers=[], node_selector=selector, tolerations=tolerated))


@pytest.mark.parametrize(
    ("more", "ok"),
    [
        ((), False),
        (({"operator": "Exists"},), True),
        (({"key": "trainy.konduktor.ai/faulty", "operator": "Exists", "effect": "NoSchedule"},), True),
        (({"key": "trainy.konduktor.ai/faulty", "operator": "Exists", "effect": "NoExecute"},), False),
        (({"key": "trainy.konduktor.ai/faulty", "value": "true"},), True),
        (({"key": "trainy.konduktor.ai/faulty", "operator": "Equal", "value": "false"},), False),
    ],
)
def test_operands_that_do_not_tolerate_the_expected_taint_are_found(more: tuple[dict[str, str], ...], ok: bool) -> None:
    pods = (_operand(AS_SHIPPED, *more),)
    way = ways(labels=deploy_labels(), operands=pods, expect={"taints": [FAULTY]}, **RESET)[RETURN]
    assert (way.ok, "trainy.konduktor.ai/faulty" in way.detail, bool(way.fix)) == (ok, not ok, not ok)


@pytest.mark.parametrize(
    "parts",
    [
        {"expect": {"taints": [FAULTY]}},
        {**RESET, "expect": {"stays_schedulable_for": "9s"}},
        {**RESET, "expect": {"taints": [{**FAULTY, "effect": "PreferNoSchedule"}]}},
    ],
    ids=["no reset", "no taint", "a taint that keeps nobody away"],
)
def test_operands_that_stay_or_may_return_need_no_toleration(parts: dict[str, Any]) -> None:
    assert RETURN not in ways(labels=deploy_labels(), operands=(_operand(AS_SHIPPED),), **parts)


def test_another_refusal_is_not_taken_for_a_missing_class() -> None:
    with pytest.raises(KubernetesError, match="violates PodSecurity"):
        ways(otherwise="violates PodSecurity")
