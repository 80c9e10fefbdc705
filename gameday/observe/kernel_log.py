"""A target's kernel-log lines in the log store, and when the injected one became readable there."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from gameday.cluster.loki import LogLine
from gameday.errors import AdapterError
from gameday.run.run import ReadOnlyRun, Run
from gameday.values.results import Hop

# The shipper stamps a line when it reads it, and a node's clock may differ from ours by this much.
_CLOCK_MARGIN = timedelta(seconds=5)
_MOST_LINES = 1000


def lines_containing(run: ReadOnlyRun, node: str, text: str, since: datetime) -> list[LogLine]:
    """Return the node's lines since then that contain `text`, oldest first. Raises AdapterError."""
    return run.servers.loki.node_lines(node, containing=text, start=since, end=run.clock.now() + _CLOCK_MARGIN)


class KernelLogTail:
    """A tail of one node's kernel log that begins before the fault, so that the injected line is dated on arrival."""

    def __init__(self, run: Run, node: str) -> None:
        since = run.clock.now() - _CLOCK_MARGIN
        self._run = run
        self._node = node
        self._arrived: list[tuple[datetime, str]] = []
        self._tail = run.servers.loki.follow_node(node, since, self._take, self._note_refused)

    def note_arrival(self, evidence: Collection[str]) -> None:
        """Record the hop into the log store once a line of the injector's `evidence` has arrived."""
        for at, text in list(self._arrived):
            line = text.partition("] ")[2] or text
            if any(line in proof for proof in evidence):
                self._run.hop(Hop.IN_LOG_STORE, self._node, at, "arrived by tail of the log store")
                return

    def stop(self) -> None:
        """End the tail."""
        self._tail.stop()

    def _take(self, line: LogLine) -> None:
        if len(self._arrived) < _MOST_LINES:
            self._arrived.append((self._run.clock.now(), line.text))

    def _note_refused(self, error: AdapterError) -> None:
        self._run.problem(f"the log store could not be tailed: {error}", "the hop into it stays unmeasured")
