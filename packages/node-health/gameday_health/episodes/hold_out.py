"""The hold-out pool: spare nodes without work, each ready to replace a node that is out of service.

A spare is a node with the label HOLD_OUT. While it waits it carries the taint HOLD_OUT. While it replaces a node it
has no such taint, but an annotation with that node's name. Both change in one write, so that a crash leaves one state
or the other, and the next look continues from what the nodes show. Nothing else is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gameday.cluster.json_api import CONFLICT, NOT_FOUND
from gameday.errors import KubernetesError
from gameday_health.episodes.api import RepairApi, node_path
from gameday_health.episodes.node import HOLD_OUT, RELEASED_FOR, NodeSeen


class Move(StrEnum):
    """A change of a spare node."""

    HOLD = "hold"
    """Keep work off a spare that replaces no node."""
    RELEASE = "release"
    """Let the spare take work in place of a quarantined node."""
    TAKE_BACK = "take-back"
    """The node is back in service: the spare takes no new work, and its running work ends by itself."""


@dataclass(frozen=True)
class Swap:
    """A move of one spare; `place` is the node that it replaces, or did replace."""

    move: Move
    spare: NodeSeen
    place: str = ""


def swaps(nodes: Iterable[NodeSeen]) -> list[Swap]:
    """Return the moves that are due: at most one for each spare, and one release for each quarantined node."""
    known = {seen.name: seen for seen in nodes}
    spares = sorted((seen for seen in known.values() if seen.hold_out), key=lambda seen: seen.name)
    due = list(_moves_back(known, spares))
    leaving = {swap.spare.name for swap in due}
    standing_in = {seen.released_for for seen in spares if seen.released_for and seen.name not in leaving}
    waiting = [seen for seen in spares if _may_stand_in(seen) and seen.name not in leaving]
    for seen in sorted(known.values(), key=lambda seen: seen.name):
        if not seen.ours or seen.hold_out or seen.name in standing_in:
            continue
        spare = next((one for one in waiting if one.pool == seen.pool), None)
        if spare is not None:
            waiting.remove(spare)
            due.append(Swap(Move.RELEASE, spare, seen.name))
    return due


def without_spare(nodes: Iterable[NodeSeen]) -> list[str]:
    """Return the quarantined nodes that no spare replaces, although their pool has a hold-out node."""
    known = list(nodes)
    pools = {seen.pool for seen in known if seen.hold_out}
    standing_in = {seen.released_for for seen in known if seen.hold_out}
    released = {swap.place for swap in swaps(known) if swap.move is Move.RELEASE}
    return sorted(
        seen.name
        for seen in known
        if seen.ours and not seen.hold_out and seen.pool in pools and seen.name not in standing_in | released
    )


def _moves_back(known: dict[str, NodeSeen], spares: Iterable[NodeSeen]) -> Iterator[Swap]:
    """Yield the spares that have to keep work off again."""
    for spare in spares:
        place = spare.released_for
        if not place:
            if not spare.held_back:
                yield Swap(Move.HOLD, spare)
        elif spare.ours:
            yield Swap(Move.TAKE_BACK, spare, place)  # it is faulty itself, so another spare takes the place
        elif (seen := known.get(place)) is not None and not seen.ours:
            yield Swap(Move.TAKE_BACK, spare, place)
        # If a node is gone, its spare keeps its place: otherwise the pool would lose a node.


def _may_stand_in(spare: NodeSeen) -> bool:
    return spare.held_back and not spare.released_for and spare.ready and not spare.ours and not spare.foreign


class HoldOutPool:
    """Makes the moves; only one process does so at a time, the leading repairer."""

    def __init__(self, api: RepairApi) -> None:
        self._api = api
        self._reported: set[str] = set()

    def keep(self, nodes: Iterable[NodeSeen]) -> None:
        """Make the moves that are due; changes that others make meanwhile are seen at the next call.

        Raises:
            KubernetesError: The API server refuses or does not answer.
        """
        known = list(nodes)
        for swap in swaps(known):
            if self._write(swap):
                self._report(swap, next((seen for seen in known if seen.name == swap.place), None))
        missing = without_spare(known)
        for name in [name for name in missing if name not in self._reported]:
            uid = next(seen.uid for seen in known if seen.name == name)
            self._api.event(
                name, uid, "HoldOutMissing", "no spare node of this pool is free to take its place", warning=True
            )
        self._reported = set(missing)

    def _write(self, swap: Swap) -> bool:
        """Write taint and annotation together; return False if somebody wrote the spare since it was seen."""
        released = swap.move is Move.RELEASE
        taints = [one for one in map(dict, swap.spare.taints) if one["key"] != HOLD_OUT]
        if not released:
            taints.append({"key": HOLD_OUT, "value": "true", "effect": "NoSchedule"})
        metadata: dict[str, Any] = {
            "resourceVersion": swap.spare.version,
            "annotations": {RELEASED_FOR: swap.place if released else None},
        }
        try:
            self._api.request(
                "PATCH", node_path(swap.spare.name), {"metadata": metadata, "spec": {"taints": taints or None}}
            )
        except KubernetesError as error:
            if error.status not in (CONFLICT, NOT_FOUND):
                raise
            return False
        return True

    def _report(self, swap: Swap, place: NodeSeen | None) -> None:
        """Write an Event about the spare, and one about the node that it replaces."""
        spare = swap.spare
        reason, message = {
            Move.HOLD: ("HoldOutHeld", "spare node: kept free of work"),
            Move.RELEASE: ("HoldOutReleased", f"takes work in the place of {swap.place}, which is out of service"),
            Move.TAKE_BACK: ("HoldOutTakenBack", f"no longer in the place of {swap.place}; its work ends by itself"),
        }[swap.move]
        self._api.event(spare.name, spare.uid, reason, message)
        if place is not None:
            self._api.event(place.name, place.uid, reason, f"spare node {spare.name} {message}")
