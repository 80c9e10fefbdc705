"""The GPU operator's operands on one node: sent away by its labels before a GPU reset, and brought back by them.

Each operand is a DaemonSet that runs where a label `nvidia.com/gpu.deploy.NAME` is `true`. The operator leaves any
other value alone (docs/sources.md, GPU operator).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from gameday.cluster.kubernetes import Kubernetes
from gameday.errors import ForeignPauseError

_PREFIX = "nvidia.com/gpu.deploy."
_OPEN_GPUS = (
    "device-plugin",
    "dcgm",
    "dcgm-dra",
    "dcgm-exporter",
    "dcgm-exporter-dra",
    "gpu-feature-discovery",
    "node-status-exporter",
    "nvsm",
)
"""The operands that keep GPUs open, or open them now and then. Driver, toolkit, validator, MIG manager and DRA driver
do not, and stay."""
_RUNS = "true"
AWAY = "paused-for-gameday"
"""The value of the label of an operand that we sent away."""


def running_operands(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return the labels of a node's operands that keep GPUs open; empty where the operator has none there.

    Raises:
        ForeignPauseError: One of them is neither on nor off, as during a driver upgrade.
    """
    found = {f"{_PREFIX}{name}": labels.get(f"{_PREFIX}{name}", "") for name in _OPEN_GPUS}
    for label, value in found.items():
        if value not in ("", "false", _RUNS, AWAY):
            raise ForeignPauseError(f"label {label} is {value}: somebody else has sent this operand away")
    return tuple(label for label, value in found.items() if value in (_RUNS, AWAY))


def pods_of(pods: Iterable[Any], labels: Collection[str]) -> list[Any]:
    """Return the pods (V1Pod) that run on a node because of one of these labels."""
    return [pod for pod in pods if not set(labels).isdisjoint(pod.spec.node_selector or {})]


def send_away(kubernetes: Kubernetes, node: str, labels: Collection[str]) -> None:
    """Have the operator's DaemonSets take these operands off the node. Raises KubernetesError."""
    kubernetes.change_node(node, lambda now: _relabelled(now, labels, _RUNS, AWAY))


def bring_back(kubernetes: Kubernetes, node: str, labels: Collection[str]) -> dict[str, str]:
    """Put back the labels that are as we left them, and return what they all are afterwards; empty: not there.

    Raises:
        KubernetesError: The node cannot be written; its status is 404 where it is gone.
    """
    after = kubernetes.change_node(node, lambda now: _relabelled(now, labels, AWAY, _RUNS))
    found = after.metadata.labels or {}
    return {label: found.get(label, "") for label in labels}


def _relabelled(node: Any, labels: Collection[str], before: str, after: str) -> dict[str, Any] | None:
    found = node.metadata.labels or {}
    changed = {label: after for label in labels if found.get(label) == before}
    return {"metadata": {"labels": changed}} if changed else None
