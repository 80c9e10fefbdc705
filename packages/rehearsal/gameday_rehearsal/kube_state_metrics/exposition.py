"""The node families of kube-state-metrics that our rules and queries read, as it shows them without options.

docs/sources.md, kube-state-metrics, has their exact words. What the real program said of the same nodes is in
`tests/rehearsal/kube_state_metrics/kube-state-metrics.txt`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kubesim.client import Object
from kubesim.quantity import value_of

_STATUSES = ("True", "False", "Unknown")
_UNITS = {"cpu": "core", "memory": "byte", "storage": "byte", "ephemeral-storage": "byte", "pods": "integer"}
_IN_BYTES = ("hugepages-", "attachable-volumes-")
_NO_LABEL_CHARACTER = re.compile(r"[^a-zA-Z0-9_]")

Samples = Iterator[tuple[tuple[str, ...], float]]
"""A family's label values after `node`, each with the sample's value."""


class _Family(NamedTuple):
    help: str
    labels: tuple[str, ...]
    samples: Callable[[Object], Samples]


class NodeCollector(Collector):
    """Metrics of the nodes in a store, computed at each look."""

    def __init__(self, nodes: Mapping[str, Object]) -> None:
        self._nodes = nodes

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield every family, even without samples: its name shows that it may have some."""
        for name, family in _FAMILIES.items():
            gauge = GaugeMetricFamily(name, f"[STABLE] {family.help}", labels=("node", *family.labels))
            for node, shown in self._nodes.items():
                for values, value in family.samples(shown):
                    gauge.add_metric((node, *values), value)
            yield gauge


def _info(node: Object) -> Samples:
    spec, status = node.get("spec") or {}, node.get("status") or {}
    machine = status.get("nodeInfo") or {}
    addresses = [one["address"] for one in status.get("addresses") or () if one["type"] == "InternalIP"]
    values = (
        *(machine.get(key, "") for key in ("kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion")),
        "deprecated",
        spec.get("providerID", ""),
        spec.get("podCIDR", ""),
        machine.get("systemUUID", ""),
        addresses[-1] if addresses else "",
    )
    yield values, 1


def _taints(node: Object) -> Samples:
    for taint in (node.get("spec") or {}).get("taints") or ():
        yield (taint["key"], taint.get("value", ""), taint["effect"]), 1


def _unschedulable(node: Object) -> Samples:
    yield (), bool((node.get("spec") or {}).get("unschedulable"))


def _conditions(node: Object) -> Samples:
    for condition in (node.get("status") or {}).get("conditions") or ():
        for status in _STATUSES:
            yield (condition["type"], status.lower()), condition["status"] == status


def _resources(part: str) -> Callable[[Object], Samples]:
    def samples(node: Object) -> Samples:
        for resource, quantity in ((node.get("status") or {}).get(part) or {}).items():
            if unit := _unit(resource):
                yield (_NO_LABEL_CHARACTER.sub("_", resource), unit), float(value_of(str(quantity)))

    return samples


def _unit(resource: str) -> str:
    """Return a resource's unit; empty if the resource is not shown."""
    if resource.startswith(_IN_BYTES):
        return "byte"
    is_extended = "/" in resource and "kubernetes.io/" not in resource and not resource.startswith("requests.")
    return _UNITS.get(resource, "integer" if is_extended else "")


_FAMILIES: dict[str, _Family] = {
    "kube_node_info": _Family(
        "Information about a cluster node.",
        (
            "kernel_version",
            "os_image",
            "container_runtime_version",
            "kubelet_version",
            "kubeproxy_version",
            "provider_id",
            "pod_cidr",
            "system_uuid",
            "internal_ip",
        ),
        _info,
    ),
    "kube_node_spec_taint": _Family("The taint of a cluster node.", ("key", "value", "effect"), _taints),
    "kube_node_spec_unschedulable": _Family("Whether a node can schedule new pods.", (), _unschedulable),
    "kube_node_status_allocatable": _Family(
        "The allocatable for different resources of a node that are available for scheduling.",
        ("resource", "unit"),
        _resources("allocatable"),
    ),
    "kube_node_status_capacity": _Family(
        "The capacity for different resources of a node.", ("resource", "unit"), _resources("capacity")
    ),
    "kube_node_status_condition": _Family("The condition of a cluster node.", ("condition", "status"), _conditions),
}
