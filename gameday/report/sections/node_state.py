"""The node before, during and after: taints, cordon, conditions, labels and annotations, and who wrote the taint."""

from __future__ import annotations

from pydantic import BaseModel

from gameday.checks.facts import target_nodes
from gameday.checks.node_diff import node_differences, node_snapshot
from gameday.history.events import TaintSeen
from gameday.report.run_folder import RunFolder
from gameday.values.nodes import NodeSnapshot

ORDER = 80
TITLE = "Taints and node state"
GROUP = "GPUs, node and pods"


_NO_RESIDUE = {
    "boot id": "expected after a reboot; no residue",
}


class StateRow(BaseModel):
    """`values` holds before, during, after; None if no snapshot was taken."""

    what: str
    values: tuple[str | None, str | None, str | None]
    residue: bool
    note: str = ""


class NodeStateTable(BaseModel):
    node: str | None
    rows: tuple[StateRow, ...]
    unchanged: int
    residues: tuple[str, ...] | None
    """Residues of the game-day on the node; None if its state before or after was not seen."""
    taints: tuple[TaintSeen, ...]


class NodeStateTables(BaseModel):
    nodes: tuple[NodeStateTable, ...]


def build(run: RunFolder) -> NodeStateTables:
    return NodeStateTables(nodes=tuple(_node(run, node) for node in target_nodes(run.history)))


def _node(run: RunFolder, node: str | None) -> NodeStateTable:
    before, during, after = (node_snapshot(run.history, node, phase) for phase in ("before", "during", "after"))
    found = node_differences(before, after) if before and after else None
    residues = {difference.what for difference in found or ()}
    views = [_view(snap) if snap else None for snap in (before, during, after)]
    keys = list(dict.fromkeys(key for view in views if view for key in view))
    rows, unchanged = [], 0
    for key in keys:
        values = tuple(None if view is None else view.get(key, "—") for view in views)
        always = key in ("scheduling", "taints", "boot id", "allocatable GPUs", "condition Ready")
        if len(set(values) - {None}) < 2 and not always:
            unchanged += 1
            continue
        residue = key in residues or (key == "taints" and any(what.startswith("taint ") for what in residues))
        note = _NO_RESIDUE.get(key, "") if len(set(values)) > 1 else ""
        rows.append(StateRow(what=key, values=(values[0], values[1], values[2]), residue=residue, note=note))
    return NodeStateTable(
        node=node,
        rows=tuple(rows),
        unchanged=unchanged,
        residues=None if found is None else tuple(map(str, found)),
        taints=tuple(event for event in run.history.of(TaintSeen) if event.node == node),
    )


def _view(snap: NodeSnapshot) -> dict[str, str]:
    gpus = snap.allocatable_gpus
    return {
        "taints": "\n".join(sorted(map(str, snap.taints))) or "none",
        "scheduling": "cordoned" if snap.unschedulable else "schedulable",
        "allocatable GPUs": "not reported" if gpus is None else str(gpus),
        "boot id": snap.boot_id,
        **{f"condition {name}": status for name, status in sorted(snap.conditions.items())},
        **{f"label {key}": value for key, value in sorted(snap.labels.items())},
        **{f"annotation {key}": value for key, value in sorted(snap.annotations.items())},
    }
