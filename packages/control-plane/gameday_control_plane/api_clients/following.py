"""A following client in a process of its own, so that its CPU is counted alone, and what it saw."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from gameday_control_plane.api_clients.follower import FollowerLine, FollowOrder
from gameday_control_plane.api_clients.measured_clients import MeasuredClients
from gameday_control_plane.values.api_loads import Followed, Sighting, Traffic, Write, lags

_LOOK_EVERY_S = 0.1


class Following(MeasuredClients[FollowerLine]):
    """A client that has been started; it sends nothing until `begin`."""

    def __init__(self, order: FollowOrder) -> None:
        """Start its process. Raises HostError."""
        self._mode = order.mode
        self._lock = threading.Lock()
        self._seen: list[Sighting] = []
        self._synced = threading.Event()
        self._synced_at = datetime.now(UTC)
        self._ended: Traffic | None = None
        self.to_sync = Traffic()
        """Traffic of its first view of all objects."""
        super().__init__("gameday_control_plane.api_clients.follow", order, FollowerLine)

    def wait_synced(self, timeout_s: float) -> bool:
        """Wait until it has seen every object; return True if it has."""
        return self.wait_for(self._synced, timeout_s)

    def wait_seen(self, writes: Sequence[Write], timeout_s: float, ended: threading.Event) -> None:
        """Wait until it has seen every write, or for `timeout_s`, or until `ended`."""
        deadline = time.monotonic() + timeout_s
        while None in self._lags(writes) and not self.is_over and time.monotonic() < deadline:
            if ended.wait(_LOOK_EVERY_S):
                return

    def measured(self, objects: int, writes: Sequence[Write], failed_writes: int) -> Followed:
        """Return what was measured, once it has ended.

        Args:
            objects: Number of objects that it followed.
            writes: The changes.
            failed_writes: Number of changes that could not be made.
        """
        found = self._lags(writes)
        return Followed(
            mode=self._mode,
            objects=objects,
            began_at=self.began_at,
            synced_at=self._synced_at,
            ended_at=self.ended_at,
            to_sync=self.to_sync,
            to_follow=(self._ended or self.to_sync) - self.to_sync,
            writes=len(writes),
            failed_writes=failed_writes,
            lags=tuple(round(lag, 4) for lag in found if lag is not None),
            unseen=found.count(None),
        )

    def _lags(self, writes: Sequence[Write]) -> list[float | None]:
        with self._lock:
            seen = tuple(self._seen)
        return lags(writes, seen)

    def _hear(self, line: FollowerLine) -> None:
        if line.synced:
            self.to_sync, self._synced_at = line.synced, datetime.now(UTC)
            self._synced.set()
        if line.ended:
            self._ended = line.ended
        with self._lock:
            self._seen += line.seen
