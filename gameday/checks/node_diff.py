"""The differences of a node from before the run, and which of them are the run's own."""

from __future__ import annotations

from dataclasses import dataclass

from gameday.history.events import IntentRecorded, LeftToOwner, NodeSeen, Refused, RepairAwaited
from gameday.history.journal import History
from gameday.values.nodes import GFD_TIMESTAMP_LABEL, NODE_LIFECYCLE_DOMAIN, NodeSnapshot

OUR_DOMAIN = "gameday.dev/"
_TAINT, _SCHEDULING = "taint ", "scheduling"


@dataclass(frozen=True)
class NodeDifference:
    """A difference from before. `ours`: the run, or what it provoked, left it, so a person must undo it."""

    node: str
    what: str
    before: str
    after: str
    ours: bool

    @property
    def is_quarantine(self) -> bool:
        """True for a taint and for the cordon."""
        return self.what == _SCHEDULING or self.what.startswith(_TAINT)

    def __str__(self) -> str:
        return f"{self.what} on {self.node} was {_short(self.before)} and is {_short(self.after)}"


def _short(value: str) -> str:
    return value if 0 < len(value) <= 80 else f"{value[:80]}…" if value else "absent"


def node_snapshot(history: History, node: str | None, phase: str) -> NodeSnapshot | None:
    """Return the first 'before', or the last 'during' or 'after' snapshot of the node."""
    seen = [event.snapshot for _, event in history.about(NodeSeen, node) if event.phase == phase]
    if not seen:
        return None
    return seen[0] if phase == "before" else seen[-1]


def node_differences(before: NodeSnapshot, after: NodeSnapshot) -> list[NodeDifference]:
    """Return the differences of taints, labels, our annotations and cordon.

    A new boot id, resource version or start of GPU feature discovery is no residue.
    """
    found = []
    for taint in sorted(set(before.taints) ^ set(after.taints), key=str):
        added = taint in after.taints
        ours = added and not taint.key.startswith(NODE_LIFECYCLE_DOMAIN)
        found.append(
            NodeDifference(
                before.node, f"{_TAINT}{taint.key}", "" if added else str(taint), str(taint) if added else "", ours
            )
        )
    if before.unschedulable != after.unschedulable:
        words = {True: "cordoned", False: "schedulable"}
        found.append(
            NodeDifference(
                before.node,
                _SCHEDULING,
                words[before.unschedulable],
                words[after.unschedulable],
                ours=after.unschedulable,
            )
        )
    return (
        found
        + _maps(before.node, "label", before.labels, after.labels)
        + _maps(before.node, "annotation", _ours(before.annotations), _ours(after.annotations))
    )


def _ours(annotations: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in annotations.items() if key.startswith(OUR_DOMAIN)}


def _maps(node: str, kind: str, before: dict[str, str], after: dict[str, str]) -> list[NodeDifference]:
    """Return the differences of two maps; a change of what was there before is not ours."""
    return [
        NodeDifference(
            node,
            f"{kind} {key}",
            before.get(key, ""),
            after.get(key, ""),
            ours=key.startswith(OUR_DOMAIN) and key not in before,
        )
        for key in sorted((before.keys() | after.keys()) - {GFD_TIMESTAMP_LABEL})
        if before.get(key) != after.get(key)
    ]


RESTORES_NODE = "restore-node"
"""Kind of the undo that takes a quarantine off."""
_TOUCHES_NODES = (RESTORES_NODE, "take-out-fault")
"""Kinds of undo that make us answerable for a node's state; they are recorded before the first fault goes in."""


def left_to_owners(history: History) -> list[LeftToOwner]:
    """Return what others put on a target during the run and is still there after it."""
    now = {seen.snapshot.node: seen.snapshot for seen in history.of(NodeSeen) if seen.phase == "after"}
    return [
        one
        for one in history.of(LeftToOwner)
        if (seen := now.get(one.node))
        and (seen.unschedulable if one.what == _SCHEDULING else one.what in {f"{_TAINT}{t.key}" for t in seen.taints})
    ]


def differences_left_by_run(history: History) -> list[NodeDifference]:
    """Return the run's own differences, over every node seen before and after it.

    Empty for a run that was refused before it changed a node, and for one that let the cluster repair: such a run
    writes nothing on a node, so what is left there is the cluster's.
    """
    if history.of(RepairAwaited):
        return []
    if history.last(Refused) and not any(intent.undo in _TOUCHES_NODES for intent in history.of(IntentRecorded)):
        return []
    nodes = dict.fromkeys(event.snapshot.node for event in history.of(NodeSeen))
    others = {(one.node, one.what) for one in history.of(LeftToOwner)}
    found: list[NodeDifference] = []
    for node in nodes:
        before, after = node_snapshot(history, node, "before"), node_snapshot(history, node, "after")
        if before and after:
            found += [one for one in node_differences(before, after) if one.ours and (node, one.what) not in others]
    return found
