"""Follow the log store and recognise the driver's lines; nothing is decided here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gameday.cluster.loki import Follower, LogLine, LogStore
from gameday.xid.lines import KernelEvent, recognise

# Everything `recognise` can see, and the game-day's harmless markers, by which the log's lag is known in quiet times.
_WANTED = r"(?i)(Xid|fallen off the bus|nvidia-peermem|gameday-agent: |gameday: marker )"


@dataclass(frozen=True, slots=True)
class Detection:
    """A line of the kernel log; `event` None: nothing about a GPU, only a sign of life."""

    node: str
    line: LogLine
    event: KernelEvent | None


class Detector:
    def __init__(
        self, store: LogStore, selector: str, node_label: str, since_ns: int, on_connected: Callable[[bool], None]
    ) -> None:
        self._node_label = node_label
        self._follower = Follower(store, f"{selector} |~ `{_WANTED}`", since_ns, on_connected=on_connected)

    def stop(self) -> None:
        self._follower.stop()

    def detections(self) -> Iterator[Detection]:
        """Blocks between lines. Raises AdapterError for a selector the store cannot parse."""
        for line in self._follower.entries():
            yield Detection(line.label(self._node_label) or "", line, recognise(line.text))
