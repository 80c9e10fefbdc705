"""Follow the log store and recognise the driver's lines; nothing is decided here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gameday.cluster.loki import LogFollower, LogLine, LogStore
from gameday.xid.lines import KernelEvent, LogReader, beat_uptime_s

# Everything that a LogReader knows, with the lines that go on with a record, which `dmesg` indents by its stamp; and
# signs of life in quiet times: the shipper's beat and game-days' markers.
_WANTED = (
    r"(?i)(^ {15}|Xid|NVRM: The NVIDIA GPU|installed in this|fallen off the bus|nvidia-peermem|gameday-agent: "
    r"|gameday: (marker|beat))"
)


@dataclass(frozen=True, slots=True)
class Detection:
    """A line of the kernel log; `event` is None for a mere sign of life."""

    node: str
    line: LogLine
    event: KernelEvent | None
    beat_uptime_s: float | None = None
    """Seconds since the node's boot, if the line is the shipper's beat."""


class Detector:
    """The log store's lines about GPUs, recognised."""

    def __init__(
        self, store: LogStore, selector: str, node_label: str, since_ns: int, on_connected: Callable[[bool], None]
    ) -> None:
        self._node_label = node_label
        self._readers: defaultdict[str, LogReader] = defaultdict(LogReader)
        self._follower = LogFollower(store, f"{selector} |~ `{_WANTED}`", since_ns, on_connected=on_connected)

    def stop(self) -> None:
        """End `detections`, from any thread."""
        self._follower.stop()

    def detections(self) -> Iterator[Detection]:
        """Yield the lines as they come, until `stop`. Raises AdapterError for a selector the store cannot parse."""
        for line in self._follower.lines():
            node = line.label(self._node_label) or ""
            yield Detection(node, line, self._readers[node].recognise(line.text), beat_uptime_s(line.text))
