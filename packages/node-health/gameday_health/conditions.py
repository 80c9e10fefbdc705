"""Conditions of a node's status as signals, each dated to the beginning of its status."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from gameday.cluster.loki import nanoseconds
from gameday_health.model import Held, NodeCondition, NodeView, digest
from gameday_health.signal import Signal, SignalKind


@dataclass(frozen=True)
class ConditionSeen:
    """A condition that is new or changed."""

    signal: Signal
    held: Held


def conditions_seen(view: NodeView, before: NodeView | None, held: tuple[Held, ...]) -> Iterator[ConditionSeen]:
    """Yield the node's conditions that are new or changed since it was last seen.

    Args:
        view: The node.
        before: The node as it was last seen; None: never.
        held: The conditions with a known beginning of their status. A checker that reports two faults in turn changes
            reason and lastTransitionTime all the time, although the status does not end.
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
    """Return the conditions that still have the status they were noted with."""
    present = {(condition.type, condition.status) for condition in view.conditions}
    return tuple(one for one in held if (one.type, one.status) in present)


def _held(condition: NodeCondition, seen: datetime) -> Held:
    try:
        found = datetime.fromisoformat(condition.since)
    except ValueError:
        found = seen
    # With a clock that is ahead, a condition from before a node's return must not look like one from after it.
    since = min(found, seen) if found.tzinfo else seen
    return Held(type=condition.type, status=condition.status, since_ns=nanoseconds(since))
