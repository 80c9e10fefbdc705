"""The node's kernel log in the window: the lines about a GPU, and who else wrote such lines."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

import pandas as pd

from gameday.cluster.loki import LogLine, Loki, nanoseconds
from gameday.cluster.profile import ClusterProfile
from gameday.history.events import KernelLineSeen
from gameday.history.frames import conform
from gameday.post_mortem.incident import Elsewhere
from gameday.xid.decide import decide
from gameday.xid.lines import KernelEvent, LogReader, recognise

_MOST_READ = 200_000
"""The most lines that are read of one node's window; the report says whether a log had more."""
_MOST_KEPT = 1000
"""Lines that are kept verbatim, the newest; recognised lines are kept as well, up to as many again."""
_MOST_ELSEWHERE = 5000
_MOST_EXAMPLES = 5


@dataclass(frozen=True)
class NodeLog:
    """The lines; `frame` is the run's `logs` frame, `read` their number, `cut` says whether there were more."""

    gpu_lines: tuple[KernelLineSeen, ...]
    frame: pd.DataFrame
    read: int
    cut: bool


def node_log(loki: Loki, node: str, start: datetime, end: datetime) -> NodeLog:
    """Read the node's kernel log of the window from Loki. Raises AdapterError."""
    lines = loki.iterate_node_lines(node, containing="", start=start, end=end)
    newest: deque[LogLine] = deque(maxlen=_MOST_KEPT)
    spoken: list[KernelLineSeen] = []
    reader = LogReader()
    read = 0
    for line in islice(lines, _MOST_READ):
        read += 1
        newest.append(line)
        event = reader.recognise(line.text)
        if event and len(spoken) < _MOST_KEPT:
            spoken.append(_seen(node, line, event))
    rows: list[dict[str, object]] = [
        {"time": pd.Timestamp(line.at), "node": node, "line": line.text} for line in newest
    ]
    return NodeLog(tuple(spoken), conform("logs", rows), read, cut=read == _MOST_READ)


def _seen(node: str, line: LogLine, event: KernelEvent) -> KernelLineSeen:
    decision = decide(event)
    return KernelLineSeen(
        node=node,
        family=event.kind,
        code=event.code,
        pci=event.pci,
        decision=decision.response,
        reason=decision.reason,
        line=event.line,
        at=line.at,
    )


def lines_elsewhere(loki: Loki, profile: ClusterProfile, node: str, start: datetime, end: datetime) -> Elsewhere | None:
    """Count the Xid and SXid lines that other nodes wrote in the window. Raises AdapterError."""
    query = f'{profile.loki_selector.strip()} |~ "Xid"'
    found = islice(loki.query_range(query, nanoseconds(start), nanoseconds(end)), _MOST_ELSEWHERE)
    nodes = _by_node(found, profile.loki_node_label)
    nodes.pop(node, None)
    if not nodes:
        return None
    examples = tuple(f"{name} ({count} lines)" for name, count in nodes.most_common(_MOST_EXAMPLES))
    return Elsewhere(what="Xid or SXid lines of other nodes", count=len(nodes), unit="nodes", examples=examples)


def _by_node(lines: Iterable[LogLine], label: str) -> Counter[str]:
    return Counter(line.label(label) or "?" for line in lines if recognise(line.text))
