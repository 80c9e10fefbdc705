"""Entries of a ledger for the tests of their undo."""

from __future__ import annotations

from datetime import UTC, datetime

from gameday.ledger.entries import (
    Entry,
    TakeOutFault,
    Undo,
)
from gameday.values.nodes import Taint

TAINT = Taint(key="trainy.konduktor.ai/faulty", value="true", effect="NoSchedule")
LATER = datetime(2030, 1, 1, tzinfo=UTC)
FOREIGN = {"key": "example.com/busy", "value": "yes", "effect": "NoSchedule"}


def entry(undo: Undo, node: str | None = "n1") -> Entry:
    return Entry(id="e", seq=0, act="act", node=node, undo=undo, expires=LATER)


def take_out(pod: str) -> TakeOutFault:
    return TakeOutFault(pod=pod, gpu=0, fault={"type": "xid", "xid": 79})
