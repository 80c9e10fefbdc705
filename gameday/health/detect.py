"""Follow the log store and recognise the driver's lines; nothing is decided here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gameday.cluster.loki import LogFollower, LogLine, LogStore
from gameday.xid.lines import KernelEvent, beat_uptime_s, recognise

# Everything `recognise` can see, and what tells in quiet times that the log goes on: the shipper's beat, and the
# markers of game-days.
_WANTED = r"(?i)(Xid|fallen off the bus|nvidia-peermem|gameday-agent: |gameday: (marker|beat))"


@dataclass(frozen=True, slots=True)
class Detection:
    """A line of the kernel log; `event` None: nothing about a GPU, only a sign of life."""

    node: str
    line: LogLine
    event: KernelEvent | None
    beat_s: float | None = None
    """Where the line is the shipper's beat: seconds since the node's boot."""


class Detector:
    def __init__(
        self, store: LogStore, selector: str, node_label: str, since_ns: int, on_connected: Callable[[bool], None]
    ) -> None:
        self._node_label = node_label
        self._follower = LogFollower(store, f"{selector} |~ `{_WANTED}`", since_ns, on_connected=on_connected)

    def stop(self) -> None:
        self._follower.stop()

    def detections(self) -> Iterator[Detection]:
        """Blocks between lines. Raises AdapterError for a selector the store cannot parse."""
        for line in self._follower.lines():
            node = line.label(self._node_label) or ""
            yield Detection(node, line, recognise(line.text), beat_uptime_s(line.text))
