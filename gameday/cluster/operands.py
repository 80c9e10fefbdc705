"""The GPU operator's operands on one node: sent away by its labels before a GPU reset, and brought back by them.

Each operand is a DaemonSet for the nodes on which a label `nvidia.com/gpu.deploy.NAME` is `true`. The operator leaves
any other value alone (docs/sources.md, GPU operator).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from gameday.cluster.kubernetes import Kubernetes
from gameday.errors import ForeignPauseError
from gameday.values.nodes import Taint

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
"""The operands that keep GPUs open, or open them now and then. Driver, toolkit, validator, MIG manager and DRA
driver do not, and stay."""
_RUNS = "true"
_KEEP_PODS_AWAY = ("NoSchedule", "NoExecute")
AWAY = "paused-for-gameday"
"""The label's value for an operand that we sent away."""


def running_operands(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return the labels of a node's operands that keep GPUs open; empty if the operator has none there.

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


def keeps_away(pods: Iterable[Any], taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """Return the taints that would keep away a successor of one of these pods.

    The DaemonSet controller creates none for a node with a NoSchedule or NoExecute taint that the pod does not
    tolerate; the tolerations that it adds itself are in the pods. As shipped, the operator's operands tolerate
    nvidia.com/gpu besides these, and nothing else (docs/sources.md, GPU operator).

    Args:
        pods: Pods (V1Pod) of operands.
        taints: The node's current or expected taints.
    """
    there = [pod.spec.tolerations or () for pod in pods]
    hard = [taint for taint in taints if taint.effect in _KEEP_PODS_AWAY]
    return tuple(taint for taint in hard if not all(_tolerated(taint, tolerations) for tolerations in there))


def let_return(taints: Sequence[Taint]) -> str:
    """Return how to let operands return to nodes with these taints: a command, and whether it has to be kept."""
    added = [
        {
            "op": "add",
            "path": "/spec/daemonsets/tolerations/-",
            "value": {"key": taint.key, "operator": "Exists", "effect": taint.effect},
        }
        for taint in taints
    ]
    patch = json.dumps(added, separators=(",", ":"))
    command = f"kubectl patch clusterpolicy cluster-policy --type=json -p '{patch}'"
    return f"{command}, and the same in daemonsets.tolerations of the GPU operator's chart"


def _tolerated(taint: Taint, tolerations: Iterable[Any]) -> bool:
    return any(
        one.effect in (None, "", taint.effect)
        and one.key in (None, "", taint.key)
        and (one.operator == "Exists" or (one.key == taint.key and (one.value or "") == taint.value))
        for one in tolerations
    )


def send_away(kubernetes: Kubernetes, node: str, labels: Collection[str]) -> None:
    """Make the operator's DaemonSets remove these operands from the node. Raises KubernetesError."""
    kubernetes.change_node(node, lambda now: _relabelled(now, labels, _RUNS, AWAY))


def bring_back(kubernetes: Kubernetes, node: str, labels: Collection[str]) -> dict[str, str]:
    """Put back the labels that are as we left them, and return all their values afterwards; empty if missing.

    Raises:
        KubernetesError: The node cannot be written; its status is 404 if it is gone.
    """
    after = kubernetes.change_node(node, lambda now: _relabelled(now, labels, AWAY, _RUNS))
    found = after.metadata.labels or {}
    return {label: found.get(label, "") for label in labels}


def _relabelled(node: Any, labels: Collection[str], before: str, after: str) -> dict[str, Any] | None:
    found = node.metadata.labels or {}
    changed = {label: after for label in labels if found.get(label) == before}
    return {"metadata": {"labels": changed}} if changed else None
