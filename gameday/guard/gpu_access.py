"""The ways in which pods of this cluster get GPUs and driver, as far as the API server shows them.

Admission is tested by dry runs that create nothing: it refuses an unknown RuntimeClass. The device plugin's pod shows
how containers learn which GPUs they have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from gameday.cluster.manifests import agent_pod
from gameday.cluster.operands import let_return, running_operands
from gameday.errors import ForeignPauseError, KubernetesError
from gameday.expect.taints import TaintEffect
from gameday.faults.optional import needs_of
from gameday.guard.device_plugin import DevicePlugin, device_plugin
from gameday.host.privileges import KERNEL_LOG
from gameday.remediations.registry import remediation_for
from gameday.run.operands import (
    UPGRADE_HINT,
    expected_taints_that_keep_operands_away,
    movable_operands,
    operand_pods,
)
from gameday.run.run import ReadOnlyRun
from gameday.run.targets import Targets

_RUNTIME_CLASS = "nvidia"
"""The RuntimeClass that the GPU operator creates, except with NRI (docs/sources.md, GPU operator)."""
_DEPLOY = "nvidia.com/gpu.deploy."


@dataclass(frozen=True)
class Way:
    """A statement about how GPUs are reached here."""

    name: str
    ok: bool | None
    """False if it will not work; None if only the node knows."""
    detail: str
    fix: str = ""


def gpu_access(run: ReadOnlyRun, targets: Targets) -> Iterator[Way]:
    """Yield how our pods get the driver, how they find their own GPUs, and what a reset or a removal sends away.

    Raises:
        KubernetesError: The API server does not answer, or refuses the dry run for another reason.
    """
    if not targets:
        return
    node = targets[0].node
    now = run.nodes.now(node)
    labels = now.labels if now else {}
    has_operator = any(label.startswith(_DEPLOY) for label in labels)
    yield _driver(run, node, has_operator=has_operator)
    yield _own_gpus(run, node)
    needs = needs_of(run.plan.fault)
    reset = needs.operands_away_to_undo or remediation_for(run.plan.recover.remediation).needs_idle_gpu
    removed = needs.operands_away and not needs.operands_away_to_undo
    if reset:
        yield _operands("reset", node, labels)
    if removed:
        yield _operands("removal", node, labels)
    if reset or removed:
        yield from _operands_come_back(run, node)


def _driver(run: ReadOnlyRun, node: str, *, has_operator: bool) -> Way:
    """Return how a pod of ours without a GPU of its own gets NVML."""
    name, chosen = "the driver in our pods", run.profile.agent_runtime_class
    if chosen:
        there = _is_there(run, node, chosen)
        without = "take agent_runtime_class out of the cluster profile, or name the class that this cluster has"
        detail = f"RuntimeClass {chosen}" if there else f"no RuntimeClass {chosen} is there: our pods are refused"
        return Way(name, there, detail, "" if there else without)
    if _is_there(run, node, _RUNTIME_CLASS):
        return Way(
            name,
            None,
            f"RuntimeClass {_RUNTIME_CLASS} is there, but our pods do not name it: they have the driver only if "
            "that runtime is the nodes' default, and with CDI the GPU operator does not set that",
            f"set agent_runtime_class: {_RUNTIME_CLASS} in the cluster profile",
        )
    if has_operator:
        return Way(
            name,
            None,
            f"no RuntimeClass {_RUNTIME_CLASS}, but the GPU operator: our pods ask its NRI plugin by annotation, and "
            "those with hostPID use the host's library without it",
            f"let the toolkit's NRI_MANAGEMENT_CDI_DEVICE_NAMESPACES name {run.profile.namespace} (docs/install.md)",
        )
    return Way(name, True, f"no RuntimeClass {_RUNTIME_CLASS}: by NVIDIA's runtime as the nodes' default")


def _own_gpus(run: ReadOnlyRun, node: str) -> Way:
    """Return how a canary finds the GPUs that it was given."""
    name, found = "a canary's own GPUs", run.nodes.object(node)
    kubelet = f"the pod-resources API of the kubelet, {found.status.node_info.kubelet_version if found else 'unknown'}"
    plugin = device_plugin(run.nodes.pods_on(node))
    strategies = plugin.list_strategies if plugin else ()
    if plugin and strategies == ("envvar",):
        ids = {"uuid": "UUIDs", "index": "indices"}.get(plugin.id_strategy or "", "UUIDs or indices")
        return Way(name, True, f"by NVIDIA_VISIBLE_DEVICES, where the device plugin names {ids}; else by {kubelet}")
    if plugin and strategies and "envvar" not in strategies:
        by_nri = plugin.asks_nri and not _is_there(run, node, _RUNTIME_CLASS)
        beside = " beside the GPU operator's NRI plugin" if by_nri else ""
        listed = f"the device plugin's strategy is {','.join(strategies)}{beside}"
        return Way(name, True, f"by {kubelet}: {listed}, so NVIDIA_VISIBLE_DEVICES names none")
    why = f"cannot be told from outside: {_why_untold(plugin, node)}"
    return Way(name, None, f"{why}. A canary asks NVIDIA_VISIBLE_DEVICES, then {kubelet}, then NVML")


def _why_untold(plugin: DevicePlugin | None, node: str) -> str:
    """Return why only a container knows the names of its GPUs."""
    if plugin is None:
        return f"no pod on {node} is known to be its device plugin"
    if not plugin.list_strategies:
        return f"the device plugin on {node} has a configuration file"
    return f"the device plugin's strategies are {','.join(plugin.list_strategies)}, and the runtime heeds one of them"


def _operands(before: Literal["reset", "removal"], node: str, labels: dict[str, str]) -> Way:
    name = f"operands before a GPU {before}"
    try:
        operands = running_operands(labels)
    except ForeignPauseError as error:
        return Way(name, False, f"{node}: {error}", UPGRADE_HINT)
    short = ", ".join(label.removeprefix(_DEPLOY) for label in operands)
    away = f"{short} leave {node}, and come back after it" if short else f"{node} has no label {_DEPLOY}*: none leaves"
    return Way(name, True, away)


def _operands_come_back(run: ReadOnlyRun, node: str) -> Iterator[Way]:
    """Check that operands may be scheduled to a node with the taints that the plan expects."""
    try:
        operands = operand_pods(run, node, movable_operands(run, node))
        kept = expected_taints_that_keep_operands_away(run, node)
    except ForeignPauseError:
        return
    if not operands or all(taint.effect is TaintEffect.PREFER_NO_SCHEDULE for taint in run.plan.expect.taints):
        return
    name = "operands return to a tainted node"
    if not kept:
        yield Way(name, True, "they tolerate the taints that the plan expects")
        return
    yield Way(name, False, f"an operand does not tolerate {', '.join(map(str, kept))}", let_return(kept))


def _is_there(run: ReadOnlyRun, node: str, runtime_class: str) -> bool:
    """Return True if admission knows a RuntimeClass. Raises KubernetesError for another refusal."""
    manifest = agent_pod(
        run.record.object_name("runtime"),
        task="{}",
        role="doctor",
        run_id=run.id,
        node=node,
        profile=run.profile.model_copy(update={"agent_runtime_class": runtime_class}),
        deadline=timedelta(seconds=1),
        security=KERNEL_LOG,
    )
    try:
        run.kubernetes.create_pod(manifest, dry_run=True)
    except KubernetesError as error:
        if error.status == 403 and f'RuntimeClass "{runtime_class}" not found' in error.cause:
            return False
        raise
    return True
