"""Write the nodes' GPU classes as labels, all of a run's or none, and take them off again.

A run writes only labels that change. If it cannot write all of them it undoes those that it wrote; if it is killed
meanwhile, the reaper does. Once all are written they stay: the next run renews them, and `gameday fleet --unlabel`
takes them off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from itertools import islice

from gameday.cluster.gpu_class import change_gpu_class, gpu_class_of, nodes_with_gpu_class
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.pods import PodFollower
from gameday.errors import AdapterError, KubernetesError
from gameday.ledger.entries import RestoreGpuClasses
from gameday.ledger.ledger import ENTRY_BYTES, LEDGER_BYTES, Ledger
from gameday.ledger.undo import undo_entry
from gameday.values.gpu_class import GpuClass
from gameday.values.results import Cleanliness
from gameday_fleet.classes import NodeClass
from gameday_fleet.record import Labelled

_BATCH = 200
"""Nodes of one ledger entry: with both labels of each, 18 KB at most if names have 30 characters. So 5,000 nodes
take under half of the 1 MiB that a ConfigMap may hold.
"""
_LONGEST = max(GpuClass, key=len)
_WRITTEN_WITHIN = timedelta(minutes=10)
"""Time after which the reaper may undo labels of a run that has not finished: 5,000 nodes at ten a second."""
_KEPT = "kept: the labels are meant to stay until the next fleet run; gameday fleet --unlabel takes them off"


def why_labels_do_not_fit(nodes: Sequence[str]) -> str:
    """Return why one ledger cannot hold the labels of these nodes; empty if it can.

    The ledger needs room for all of them at once: until the last one is written, each may have to be put back.
    """
    longest = str(_LONGEST)
    batches = [dict.fromkeys(names, longest) for names in _batches(nodes)]
    undos = (RestoreGpuClasses(before=batch, set_to=batch).model_dump_json() for batch in batches)
    needed = sum(len(undo) + ENTRY_BYTES for undo in undos)
    if needed <= LEDGER_BYTES:
        return ""
    return (
        f"the GPU classes of {len(nodes)} nodes may take {needed / 1024:.0f} KiB of the run's ledger, which holds "
        f"{LEDGER_BYTES / 1024:.0f} KiB"
    )


def write_labels(
    kubernetes: Kubernetes, ledger: Ledger, classes: Sequence[NodeClass], pods: PodFollower, stopped: Callable[[], str]
) -> Labelled:
    """Write every node's class as its label, unless it has that label already or somebody else set another.

    Args:
        kubernetes: The cluster.
        ledger: A ledger without entries of others; its entries are settled afterwards.
        classes: The nodes' classes.
        pods: Follows the run's pods, as every undo needs it.
        stopped: Returns why the run has to end; empty while it may continue.
    """
    wanted = {one.node: str(one.gpu_class) for one in classes}
    changed: dict[str, str] = {}
    unchanged: list[str] = []
    alone: dict[str, str] = {}
    try:
        for names in _batches(wanted):
            before = _present(kubernetes, names, alone)
            unchanged += [node for node, value in before.items() if value == wanted[node]]
            todo = {node: value for node, value in before.items() if value != wanted[node]}
            if todo:
                changed |= _write(kubernetes, ledger, todo, wanted, alone, stopped)
    except (AdapterError, _StoppedError) as error:
        return _undone(kubernetes, ledger, pods, str(error), alone)
    for entry in ledger.open_entries():
        ledger.settle(entry, Cleanliness.CLEAN, "flow", [_KEPT])
    return Labelled(changed=changed, unchanged=tuple(unchanged), left_alone=alone)


class _StoppedError(Exception):
    """The run has to end before all labels are written."""


def _batches(names: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(names)
    while batch := list(islice(rest, _BATCH)):
        yield batch


def _present(kubernetes: Kubernetes, names: Sequence[str], alone: dict[str, str]) -> dict[str, str]:
    """Return the labels of the nodes that still exist and may be changed; put those of the others into `alone`."""
    found: dict[str, str] = {}
    for name in names:
        node = kubernetes.node_or_none(name)
        if node is None:
            continue
        value, ours = gpu_class_of(kubernetes.api.sanitize_for_serialization(node.metadata))
        (found if ours else alone)[name] = value
    return found


def _write(
    kubernetes: Kubernetes,
    ledger: Ledger,
    before: Mapping[str, str],
    wanted: Mapping[str, str],
    alone: dict[str, str],
    stopped: Callable[[], str],
) -> dict[str, str]:
    """Write the labels of a batch of nodes; return what is stored. Raises AdapterError and _StoppedError."""
    set_to = {node: wanted[node] for node in before}
    number = len(ledger.open_entries())
    ledger.intend(
        id=f"gpu-classes-{number}",
        act=f"label nodes with their GPU class: {len(before)}",
        node=None,
        undo=RestoreGpuClasses(before=dict(before), set_to=set_to),
        expires=datetime.now(UTC) + _WRITTEN_WITHIN,
    )
    changed: dict[str, str] = {}
    for node, value in set_to.items():
        if why := stopped():
            raise _StoppedError(why)
        stored = _change(kubernetes, node, value)
        if stored == value:
            changed[node] = value
        elif stored is not None:
            alone[node] = stored
    return changed


def _change(kubernetes: Kubernetes, node: str, value: str) -> str | None:
    """Set a node's label, or take it off if `value` is empty. Return the stored value, or None if the node is gone."""
    try:
        return change_gpu_class(kubernetes, node, lambda _: value)[0]
    except KubernetesError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return None


def _undone(kubernetes: Kubernetes, ledger: Ledger, pods: PodFollower, why: str, alone: dict[str, str]) -> Labelled:
    """Undo what was written. What cannot be undone stays in the ledger for the reaper."""
    left = Cleanliness.CLEAN
    for entry in ledger.open_entries():
        done = undo_entry(kubernetes, entry, ledger.header.run_id, pods)
        try:
            ledger.settle(entry, done.cleanliness, "flow", done.evidence)
        except AdapterError:
            left = Cleanliness.UNKNOWN
        left = left if done.cleanliness is Cleanliness.CLEAN else done.cleanliness
    return Labelled(left_alone=alone, stopped=why, cleanliness=left)


def take_labels_off(kubernetes: Kubernetes, stopped: Callable[[], str]) -> Labelled:
    """Take the label off every node that has ours, until the caller has to stop. Raises KubernetesError."""
    changed: dict[str, str] = {}
    alone: dict[str, str] = {}
    for node in nodes_with_gpu_class(kubernetes):
        if why := stopped():
            return Labelled(changed=changed, left_alone=alone, stopped=why)
        stored = _change(kubernetes, node, "")
        if stored:
            alone[node] = stored
        elif stored is not None:
            changed[node] = ""
    return Labelled(changed=changed, left_alone=alone)
