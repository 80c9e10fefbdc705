"""Follow the log store and recognise the driver's lines; nothing is decided here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from gameday.cluster.loki import LogFollower, LogLine, LogStore
from gameday.xid.lines import KernelEvent, LogReader, beat_uptime_s

# Everything that a LogReader knows, with the lines that go on with a record, which `dmesg` indents by its stamp; and
# signs of life in quiet times: the shipper's beat and game-days' markers.
_WANTED = (
    r"(?i)(^ {15}|Xid|NVRM: The NVIDIA GPU|installed in this|fallen off the bus|nvidia-peermem|gameday-agent: "
    r"|gameday: (marker|beat))"
)
_MOST_READERS = 20_000
"""Nodes of which the last lines are remembered: more than the largest clusters have, as anything may be a label."""


@dataclass(frozen=True, slots=True)
class NodeLine:
    """A line of a node's kernel log, not recognised yet."""

    node: str
    """The node by the label that the collector gives its stream; empty without one."""
    line: LogLine


@dataclass(frozen=True, slots=True)
class Detection:
    """A line of the kernel log; `event` is None for a mere sign of life."""

    node: str
    line: LogLine
    event: KernelEvent | None
    beat_uptime_s: float | None = None
    """Seconds since the node's boot, if the line is the shipper's beat."""


class LineReader:
    """The kernel logs of all nodes, each read in its order."""

    def __init__(self) -> None:
        self._log_of = lru_cache(maxsize=_MOST_READERS)(lambda _node: LogReader())

    def read(self, found: NodeLine) -> Detection:
        """Recognise a node's next line."""
        event = self._log_of(found.node).recognise(found.line.text)
        return Detection(found.node, found.line, event, beat_uptime_s(found.line.text))


class Detector:
    """The log store's lines about GPUs."""

    def __init__(
        self,
        store: LogStore,
        selector: str,
        node_label: str,
        since_ns: int,
        on_connected: Callable[[bool], None],
        on_unreadable: Callable[[int], None],
    ) -> None:
        self._node_label = node_label
        self._follower = LogFollower(
            store, f"{selector} |~ `{_WANTED}`", since_ns, on_connected=on_connected, on_unreadable=on_unreadable
        )

    def stop(self) -> None:
        """End `lines`, from any thread."""
        self._follower.stop()

    def lines(self) -> Iterator[NodeLine]:
        """Yield the lines as they come, until `stop`. Raises AdapterError for a selector the store cannot parse."""
        for line in self._follower.lines():
            yield NodeLine(line.label(self._node_label) or "", line)

    def detections(self) -> Iterator[Detection]:
        """Yield the lines recognised; errors as of `lines`."""
        return map(LineReader().read, self.lines())
