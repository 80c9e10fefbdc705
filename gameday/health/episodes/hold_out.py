"""The hold-out pool: spare nodes kept tainted, one of which is released for each node that is quarantined.

A node belongs to the pool by its label. Whatever the pool has to know is on its nodes (taint and annotation), so that
it survives restarts; each change is one write that names the version it was made from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gameday.errors import KubernetesError
from gameday.health.episodes.api import CONFLICT, NOT_FOUND, RepairApi, node_path
from gameday.health.episodes.node import HOLD_OUT, RELEASED_FOR, NodeSeen

_TAINT = {"key": HOLD_OUT, "value": "spare", "effect": "NoSchedule"}


@dataclass(frozen=True)
class Change:
    """A change of one spare node: `released_for` is the node it replaces, and None takes it back."""

    spare: NodeSeen
    released_for: str | None


def changes(nodes: Iterable[NodeSeen]) -> list[Change]:
    """Return what is to be changed so that each quarantined node has a spare in its place, while there are any.

    A spare that is quarantined itself, not Ready or cordoned replaces nobody; it keeps its place until it is back. A
    spare whose node is back takes the place of another node that has none, before it is taken back.
    """
    every = sorted(nodes, key=lambda seen: seen.name)
    quarantined = [seen.name for seen in every if seen.ours and not seen.hold_out]
    pool = [seen for seen in every if seen.hold_out]
    usable = [seen for seen in pool if seen.ready and not seen.ours and not seen.cordoned]
    kept: dict[str, str] = {}  # by the quarantined node whose place it takes
    for seen in usable:
        if seen.released_for in quarantined:
            kept.setdefault(seen.released_for, seen.name)
    waiting = [name for name in quarantined if name not in kept]
    made = [_settled(seen, kept, waiting) for seen in usable if seen.released_for]
    made += [Change(seen, waiting.pop(0)) for seen in usable if not seen.released_for and waiting]
    changed = {change.spare.name for change in made if change}
    idle = [seen for seen in pool if not seen.released_for and not seen.held_back and seen.name not in changed]
    return [change for change in made if change] + [Change(seen, None) for seen in idle]


def _settled(spare: NodeSeen, kept: Mapping[str, str], waiting: list[str]) -> Change | None:
    """Return the change of a spare that was released; None where it is as it should be."""
    if spare.released_for and kept.get(spare.released_for) == spare.name:
        return Change(spare, spare.released_for) if spare.held_back else None
    return Change(spare, waiting.pop(0) if waiting else None)


def carry_out(api: RepairApi, change: Change) -> bool:
    """Write a change; return False where somebody wrote the node meanwhile, or it is gone. Raises KubernetesError."""
    spare = change.spare
    others = [dict(one) for one in spare.taints if dict(one)["key"] != HOLD_OUT]
    taints = others if change.released_for else [*others, _TAINT]
    patch: dict[str, Any] = {
        "metadata": {"resourceVersion": spare.version, "annotations": {RELEASED_FOR: change.released_for}},
        "spec": {"taints": taints or None},
    }
    try:
        api.request("PATCH", node_path(spare.name), patch)
    except KubernetesError as error:
        if error.status in (CONFLICT, NOT_FOUND):
            return False
        raise
    if change.released_for:
        api.event(spare.name, spare.uid, "HoldOutReleased", f"in the place of {change.released_for}")
    elif spare.released_for:
        message = f"{spare.released_for} is back, or gone: new work stays off this spare node"
        api.event(spare.name, spare.uid, "HoldOutTakenBack", message)
    return True
