"""The detection chain's hops, each recorded once per node."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime

from gameday.history.events import Event, HopSeen
from gameday.values.results import Hop


class DetectionChain:
    """The hops that were seen so far; shared by the steps and the watches' threads."""

    def __init__(self, note: Callable[[Event], None]) -> None:
        self._note = note
        self._seen: set[tuple[Hop, str]] = set()
        self._lock = threading.Lock()

    def add(self, hop: Hop, node: str, at: datetime, source: str) -> None:
        """Note a hop in the history, unless it was seen for this node before.

        Args:
            hop: The link of the chain.
            node: The node whose fault is being detected.
            at: When it happened, by the clock that `source` names.
            source: Where the time comes from, for the report.
        """
        with self._lock:
            if (hop, node) in self._seen:
                return
            self._seen.add((hop, node))
        self._note(HopSeen(hop=hop, node=node, at=at, source=source))

    def has(self, hop: Hop, node: str) -> bool:
        """Return True where the hop was seen for this node."""
        with self._lock:
            return (hop, node) in self._seen
