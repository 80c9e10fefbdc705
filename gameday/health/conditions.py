"""Conditions of a node's status as signals: a condition that holds is one, from the beginning of its status on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from gameday.cluster.loki import nanoseconds
from gameday.health.model import Held, NodeCondition, NodeView, digest
from gameday.health.signal import Signal, SignalKind


@dataclass(frozen=True)
class ConditionSeen:
    """A condition that is new or has changed."""

    signal: Signal
    held: Held


def conditions_seen(view: NodeView, before: NodeView | None, held: tuple[Held, ...]) -> Iterator[ConditionSeen]:
    """Yield the node's conditions that are new or have changed since it was last seen.

    Args:
        view: The node.
        before: The node as it was last seen; None: never.
        held: The conditions of which it is known since when their status has held. A checker that reports two faults
            in turns changes reason and lastTransitionTime all the time, and the status does not end.
    """
    known = frozenset(before.conditions if before else ())
    since = {(one.type, one.status): one for one in held}
    for condition in view.conditions:
        if condition in known:
            continue
        seen = datetime.now(UTC)
        one = since.get((condition.type, condition.status)) or _held(condition, seen)
        began = datetime.fromtimestamp(one.since_ns / 1e9, UTC)
        text = f"{condition.reason}: {condition.message}" if condition.message else condition.reason
        labels = {"status": condition.status, "reason": condition.reason}
        key = digest(f"{condition.type} {condition.status} {condition.reason} {one.since_ns}")
        yield ConditionSeen(
            Signal(view.name, SignalKind.CONDITION, condition.type, began, seen, text, labels=labels, key=key), one
        )


def still_held(view: NodeView, held: tuple[Held, ...]) -> tuple[Held, ...]:
    """Return the conditions that have the status by which they were noted."""
    present = {(condition.type, condition.status) for condition in view.conditions}
    return tuple(one for one in held if (one.type, one.status) in present)


def _held(condition: NodeCondition, seen: datetime) -> Held:
    try:
        found = datetime.fromisoformat(condition.since)
    except ValueError:
        found = seen
    # A clock that is ahead must not make a condition of before a node's return one of after it.
    since = min(found, seen) if found.tzinfo else seen
    return Held(type=condition.type, status=condition.status, since_ns=nanoseconds(since))
