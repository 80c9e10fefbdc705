"""Conditions of a node's status as signals: a condition that holds is one, from its last transition on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from gameday.health.model import NodeView, digest
from gameday.health.signal import Signal, SignalKind


def condition_signals(view: NodeView, before: NodeView | None) -> Iterator[Signal]:
    """Yield the node's conditions that are new or have changed since it was last seen.

    Args:
        view: The node.
        before: The node as it was last seen; None: never.
    """
    known = frozenset(before.conditions if before else ())
    for condition in view.conditions:
        if condition in known:
            continue
        seen = datetime.now(UTC)
        yield Signal(
            view.name,
            SignalKind.CONDITION,
            condition.type,
            _moment(condition.since, seen),
            seen,
            f"{condition.reason}: {condition.message}" if condition.message else condition.reason,
            labels={"status": condition.status, "reason": condition.reason},
            key=digest(f"{condition.type} {condition.status} {condition.reason} {condition.since}"),
        )


def _moment(text: str, otherwise: datetime) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return otherwise
    return found if found.tzinfo else otherwise
