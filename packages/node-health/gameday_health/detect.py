"""Follow the log store and recognise the driver's lines. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from gameday.cluster.loki import Followed, LogFollower, LogLine, LogStore, nanoseconds
from gameday.values.patterns import either
from gameday.xid.lines import KernelEvent, LogReader, beat_uptime_s
from gameday_health.model import DISORDER_S

# Everything that a LogReader knows, with the lines that continue a record, which `dmesg` indents by its stamp; and
# signs of life in quiet times: the shipper's beat and game-days' markers.
_WANTED = (
    r"(?i)(^ {15}|Xid|NVRM: |installed in this|fallen off the bus|nvidia-(peermem|uvm|nvswitch)|nvswitch\d"
    r"|gameday-agent: |gameday: (marker|beat))"
)
_MOST_READERS = 20_000
"""Nodes with a remembered last line: more than the largest clusters have, because any label value counts as a node."""


@dataclass(frozen=True, slots=True)
class NodeLine:
    """A line of a node's kernel log that is not recognised yet."""

    node: str
    """The node, from the label that the collector gives its stream; empty without one."""
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
    """The kernel logs of all nodes, each read in order."""

    def __init__(self, other_line: Callable[[str], KernelEvent | None] = lambda _: None) -> None:
        """Prepare to read.

        Args:
            other_line: Reads a line that is not recognised; None from it makes the line a sign of life.
        """
        self._other_line = other_line
        self._log_of = lru_cache(maxsize=_MOST_READERS)(lambda _node: LogReader())

    def read(self, found: NodeLine) -> Detection:
        """Recognise a node's next line."""
        text = found.line.text
        event = self._log_of(found.node).recognise(text) or self._other_line(text)
        return Detection(found.node, _at_its_own_time(found.line, event), event, beat_uptime_s(text))


def _at_its_own_time(line: LogLine, event: KernelEvent | None) -> LogLine:
    """Return a line without an uptime stamp as of its own time, if the store's time is later.

    A line that is shipped again has a new time in the store.
    """
    if event is None or event.wall is None or event.uptime_s is not None:
        return line
    own_ns = nanoseconds(event.wall)
    return replace(line, ns=own_ns) if own_ns < line.ns - DISORDER_S * 1e9 else line


def wanted(patterns: Sequence[str]) -> str:
    """Return the pattern of the lines to ask the log store for: those known here, and those of a policy's patterns."""
    return either([_WANTED, *(pattern.removeprefix("^") for pattern in patterns)])


class Detector:
    """The log store's lines about GPUs."""

    def __init__(
        self,
        store: LogStore,
        selector: str,
        node_label: str,
        since_ns: int,
        on_connected: Callable[[Followed | None], None],
        on_unreadable: Callable[[int], None],
        patterns: Sequence[str] = (),
    ) -> None:
        self._node_label = node_label
        self._follower = LogFollower(
            store,
            f"{selector} |~ `{wanted(patterns)}`",
            since_ns,
            on_connected=on_connected,
            on_unreadable=on_unreadable,
        )

    def stop(self) -> None:
        """End `lines`, from any thread."""
        self._follower.stop()

    def lines(self) -> Iterator[NodeLine]:
        """Yield the lines as they come, until `stop`. Raises AdapterError if the store cannot parse the selector."""
        for line in self._follower.lines():
            yield NodeLine(line.label(self._node_label) or "", line)

    def detections(self) -> Iterator[Detection]:
        """Yield the recognised lines. Raises what `lines` raises."""
        return map(LineReader().read, self.lines())
