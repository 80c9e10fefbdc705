"""The settings by which a node's device plugin hands out GPUs, as far as its pod shows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kubernetes.client import V1Container, V1Pod

from gameday.cluster.manifests import NRI_ANNOTATION
from gameday.faults.component_pods import Component, component_of

_CONFIG_FILE = "CONFIG_FILE"


@dataclass(frozen=True)
class DevicePlugin:
    """A node's device plugin (docs/sources.md, Device plugin)."""

    list_strategies: tuple[str, ...]
    """DEVICE_LIST_STRATEGY; empty if it is in a configuration file, which the pod does not show."""
    id_strategy: str | None
    """DEVICE_ID_STRATEGY; None if it is in a configuration file."""
    asks_nri: bool
    """The plugin's own pod asks the NRI plugin for the driver."""


def device_plugin(pods: Iterable[V1Pod]) -> DevicePlugin | None:
    """Return the device plugin among a node's pods; None if no known one is there."""
    for pod in pods:
        if component_of(pod.metadata.labels or {}) is Component.DEVICE_PLUGIN:
            container = next(
                (one for one in pod.spec.containers if "device-plugin" in one.name), pod.spec.containers[0]
            )
            listed = _setting(container, "DEVICE_LIST_STRATEGY", "envvar")
            return DevicePlugin(
                list_strategies=tuple(listed.split(",")) if listed else (),
                id_strategy=_setting(container, "DEVICE_ID_STRATEGY", "uuid"),
                asks_nri=any(key.startswith(NRI_ANNOTATION) for key in pod.metadata.annotations or {}),
            )
    return None


def _setting(container: V1Container, variable: str, default: str) -> str | None:
    """Return a setting in the plugin's own order: flag, variable, configuration file (None), default."""
    flag = f"--{variable.lower().replace('_', '-')}="
    words = (*(container.command or ()), *(container.args or ()))
    given = [word.removeprefix(flag) for word in words if word.startswith(flag)]
    variables = {one.name: one.value for one in container.env or ()}
    if found := given[-1] if given else variables.get(variable):
        return str(found)
    return None if variables.get(_CONFIG_FILE) else default
