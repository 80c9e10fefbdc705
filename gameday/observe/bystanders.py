"""Watch the nodes that are no targets, to see what a rehearsal's guest writes to them."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any

from gameday.cluster.list_watch import DELETED
from gameday.cluster.nodes import snapshot
from gameday.history.events import BystanderChanged, BystandersWatched
from gameday.run.run import Run
from gameday.values.nodes import NodeSnapshot

_OF_KUBERNETES = "node.kubernetes.io/"
"""Prefix of the taints of Kubernetes' own controllers, which follow from a cordon or from a node's conditions."""
_OF_THE_KUBELET = frozenset({"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"})


def watch_bystanders(run: Run, targets: Collection[str]) -> None:
    """Follow every node that no run of this season breaks, until the end of the run.

    Raises AdapterError if the watch does not come up.
    """
    siblings = run.member.sibling_nodes if run.member else frozenset()
    changes = _Changes(run, frozenset(targets) | siblings)
    follower = run.kubernetes.follow(run.kubernetes.core.list_node, changes.take).__enter__()
    run.background.callback(follower.stop)
    follower.require_synced()
    run.note(BystandersWatched(nodes=changes.count, left_out=tuple(sorted(siblings - set(targets)))))


class _Changes:
    """The nodes as they were last seen, and what has been written to them since."""

    def __init__(self, run: Run, left_out: Collection[str]) -> None:
        self._run = run
        self._left_out = left_out
        self._seen: dict[str, NodeSnapshot] = {}
        self._taking = threading.Lock()

    @property
    def count(self) -> int:
        return len(self._seen)

    def take(self, kind: str, node: Any) -> None:
        """Note what was written to a node (V1Node). Runs in the watch's thread."""
        name = node.metadata.name
        if name in self._left_out:
            return
        with self._taking:
            if kind == DELETED:
                self._seen.pop(name, None)
                return
            now = snapshot(node)
            before, self._seen[name] = self._seen.get(name), now
        for event in _came(before, now, self._run.clock.now()) if before else ():
            self._run.note(event)


def _came(before: NodeSnapshot, now: NodeSnapshot, at: datetime) -> Iterator[BystanderChanged]:
    """Yield the taints, the cordon and the conditions that came or changed."""
    node = now.node
    for taint in now.taints:
        if taint not in before.taints and not taint.key.startswith(_OF_KUBERNETES):
            yield BystanderChanged(node=node, what="taint", value=str(taint), at=at)
    if now.unschedulable and not before.unschedulable:
        yield BystanderChanged(node=node, what="cordon", value="unschedulable", at=at)
    for name, status in now.conditions.items():
        was = before.conditions.get(name)
        if was != status and name not in _OF_THE_KUBELET:
            value = f"{name}={status}"
            yield BystanderChanged(node=node, what="condition", value=value, new_condition=was is None, at=at)
