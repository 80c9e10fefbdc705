"""The detection chain's hops, each recorded once per node."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime

from gameday.history.events import Event, HopSeen
from gameday.values.results import Hop


class DetectionChain:
    """The hops that were seen so far; the steps and the watches' threads share it."""

    def __init__(self, note: Callable[[Event], None]) -> None:
        self._note = note
        self._seen: set[tuple[Hop, str]] = set()
        self._lock = threading.Lock()
        self._alerts_asked_at: list[datetime] = []

    def add(self, hop: Hop, node: str, at: datetime, source: str) -> None:
        """Note a hop in the history, unless it was seen for this node before.

        Args:
            hop: The link of the chain.
            node: The node with the fault that is being detected.
            at: When it happened, by the clock that `source` names.
            source: The source of the time, for the report.
        """
        with self._lock:
            if (hop, node) in self._seen:
                return
            self._seen.add((hop, node))
        self._note(HopSeen(hop=hop, node=node, at=at, source=source))

    def alerts_were_noted(self, asked_at: datetime) -> None:
        """Remember that the alerts firing at this moment were noted."""
        self._alerts_asked_at.append(asked_at)

    def last_asked(self, since: datetime | None = None, until: datetime | None = None) -> datetime | None:
        """Return the last look at the alerts between two moments; None if there was none.

        An alert that was not noted did not fire at that moment.
        """
        looks = (at for at in reversed(self._alerts_asked_at) if until is None or at <= until)
        return next((at for at in looks if since is None or at >= since), None)

    def has(self, hop: Hop, node: str) -> bool:
        """Return True if the hop was seen for this node."""
        with self._lock:
            return (hop, node) in self._seen
