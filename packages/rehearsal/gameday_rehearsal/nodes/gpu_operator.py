"""NVIDIA's GPU operator on virtual nodes: how containers get GPUs and driver, and the operands that keep GPUs open.

Each way is used by clusters of today (docs/sources.md, Device plugin and GPU operator).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gameday.faults.component_pods import Component, component_of
from gameday.host.virtual import NO_DRIVER_VARIABLE
from gameday_rehearsal.nodes.identity import GpuIdentity
from kubesim.client import Object

DEPLOY = "nvidia.com/gpu.deploy."
"""Prefix of the labels by which the operator places its operands."""
RUNTIME_CLASS = "nvidia"
_DEVICES = "NVIDIA_VISIBLE_DEVICES"
_NRI, _ALL_BY_NRI = "nvidia.cdi.k8s.io/container.", "management.nvidia.com/gpu=all"


class GpuOperator(StrEnum):
    """The way in which the nodes' device plugin and GPU operator hand out GPUs."""

    NONE = "none"
    """A device plugin of its own: UUIDs in the environment, the driver in every container, monitors that leave GPUs
    closed.
    """
    RUNTIME_CLASS = "runtime-class"
    """The operator without CDI: UUIDs in the environment, the driver by RuntimeClass nvidia."""
    INDEX = "index"
    """The same with the device plugin's id strategy `index`."""
    CDI = "cdi"
    """The operator's default since 25.10: NVIDIA_VISIBLE_DEVICES is `void`, RuntimeClass nvidia is not the default."""
    NRI = "nri"
    """CDI with the operator's NRI plugin: no RuntimeClass, the driver by a pod's annotation."""

    @property
    def runtime_classes(self) -> tuple[str, ...]:
        """The RuntimeClasses that the operator makes; the first is our agent's."""
        if self is GpuOperator.CDI:
            return (RUNTIME_CLASS, "nvidia-cdi", "nvidia-legacy")
        return (RUNTIME_CLASS,) if self in (GpuOperator.RUNTIME_CLASS, GpuOperator.INDEX) else ()

    @property
    def device_plugin_settings(self) -> dict[str, str]:
        """The variables of the device plugin's container (docs/sources.md, Device plugin and GPU operator)."""
        if self is GpuOperator.NONE:
            return {}
        by_cdi = self in (GpuOperator.CDI, GpuOperator.NRI)
        return {
            "DEVICE_LIST_STRATEGY": "cdi-annotations,cdi-cri" if by_cdi else "envvar",
            "DEVICE_ID_STRATEGY": "index" if self is GpuOperator.INDEX else "uuid",
        }

    def device_plugin_annotations(self, container: str) -> dict[str, str]:
        """Return the annotations of the device plugin's pod that ask the NRI plugin for the driver."""
        return {f"{_NRI}{container}": _ALL_BY_NRI} if self is GpuOperator.NRI else {}


@dataclass(frozen=True)
class Operand:
    """An operand with a DaemonSet: its `app` label, and the process that keeps every GPU open."""

    app: str
    command: str


OPERANDS: dict[str, Operand] = {
    "device-plugin": Operand("nvidia-device-plugin-daemonset", "nvidia-device-plugin"),
    "dcgm": Operand("nvidia-dcgm", "nv-hostengine -n --log-level ERROR"),
    "dcgm-exporter": Operand("nvidia-dcgm-exporter", "/usr/bin/dcgm-exporter"),
    "gpu-feature-discovery": Operand("gpu-feature-discovery", "gpu-feature-discovery"),
}
"""Operands by the end of their label."""
_WITHOUT_PODS_HERE = ("driver", "container-toolkit", "operator-validator")
AWAY_AT_FIRST = (Component.DEVICE_PLUGIN, Component.HOST_ENGINE, Component.EXPORTER)
"""Components that do not exist before their operand's pod runs."""


def deploy_labels() -> dict[str, str]:
    """Return the operator's labels for a new GPU node."""
    return {f"{DEPLOY}{name}": "true" for name in (*OPERANDS, *_WITHOUT_PODS_HERE)}


def operand_of(pod: Object) -> tuple[str, Component | None] | None:
    """Return the command of an operand's pod, and its component; None for any other pod."""
    labels = pod["metadata"].get("labels") or {}
    found = next((operand for operand in OPERANDS.values() if operand.app == labels.get("app")), None)
    return (found.command, component_of(labels)) if found else None


def container_environment(
    operator: GpuOperator, pod: Object, container: str, held: Sequence[GpuIdentity]
) -> dict[str, str]:
    """Return the variables that plugin and runtime give a container.

    Args:
        operator: The node's operator.
        pod: The pod.
        container: Its container's name.
        held: The GPUs that the container was given.
    """
    if held:
        match operator:
            case GpuOperator.CDI | GpuOperator.NRI:
                return {_DEVICES: "void"}
            case GpuOperator.INDEX:
                return {_DEVICES: ",".join(str(gpu.index) for gpu in held)}
        return {_DEVICES: ",".join(gpu.uuid for gpu in held)}
    return {} if _gets_driver(operator, pod, container) else {NO_DRIVER_VARIABLE: "true"}


def _gets_driver(operator: GpuOperator, pod: Object, name: str) -> bool:
    """Return True if a runtime brings the driver's libraries into a container without GPUs of its own."""
    if operator is GpuOperator.NONE:
        return True
    if operator is GpuOperator.NRI:
        asked = (pod["metadata"].get("annotations") or {}).get(f"{_NRI}{name}", "")
        return _ALL_BY_NRI in asked.split(",")
    container = next(one for one in pod["spec"]["containers"] if one["name"] == name)
    asks = any(one["name"] == _DEVICES and one.get("value") == "all" for one in container.get("env") or ())
    return asks and pod["spec"].get("runtimeClassName") == RUNTIME_CLASS
