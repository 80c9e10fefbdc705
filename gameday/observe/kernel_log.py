"""A target's kernel-log lines as the log store tells them, and when the injected one became readable there."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from gameday.cluster.loki import LogFollower, LogLine
from gameday.errors import AdapterError
from gameday.run.run import Run
from gameday.values.results import Hop

# The shipper stamps a line when it reads it; a node's clock may be this far from ours.
_CLOCK_MARGIN = timedelta(seconds=5)
_KEPT = 1000


def lines_with(run: Run, node: str, text: str, since: datetime) -> list[LogLine]:
    """The node's lines that contain `text`, oldest first; raises AdapterError."""
    return run.servers.loki.node_lines(node, containing=text, start=since, end=datetime.now(UTC) + _CLOCK_MARGIN)


class KernelLogTail:
    """Tails one node's kernel log from before the fault, so that the injected line is dated when it arrives."""

    def __init__(self, run: Run, node: str) -> None:
        since = datetime.now(UTC) - _CLOCK_MARGIN
        self._run = run
        self._node = node
        self._arrived: list[tuple[datetime, str]] = []
        self._follower: LogFollower = run.servers.loki.follow_node(node, since)
        self._thread = threading.Thread(target=self._follow, name="kernel-log", daemon=True)
        self._thread.start()

    def note(self) -> None:
        """Note the hop into the log store, if a line that the injector wrote has arrived; once."""
        fault = self._run.injected().get(self._node)
        for at, text in list(self._arrived) if fault else ():
            line = text.partition("] ")[2] or text
            if fault and any(line in proof for proof in fault.evidence):
                self._run.hop(Hop.IN_LOG_STORE, self._node, at, "arrived by tail of the log store")
                return

    def stop(self) -> None:
        self._follower.stop()
        self._thread.join(timeout=5)

    def _follow(self) -> None:
        try:
            for line in self._follower.lines():
                if len(self._arrived) < _KEPT:
                    self._arrived.append((datetime.now(UTC), line.text))
        except AdapterError as error:
            self._run.problem(f"the log store could not be tailed: {error}", "the hop into it stays unmeasured")
