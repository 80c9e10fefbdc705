"""A target's kernel-log lines as the log store tells them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gameday.cluster.http import AdapterError
from gameday.cluster.loki import LogLine
from gameday.history.events import Hop
from gameday.run.context import Run

# The shipper stamps a line when it reads it; a node's clock may be this far from ours.
_CLOCK_MARGIN = timedelta(seconds=5)


def lines_with(run: Run, node: str, text: str, since: datetime) -> list[LogLine]:
    """The node's lines that contain `text`, oldest first; raises AdapterError."""
    return run.servers.loki.node_lines(node, containing=text, start=since, end=datetime.now(UTC) + _CLOCK_MARGIN)


def note_log_store(run: Run, node: str) -> None:
    """Note when a line the injector wrote is first found in the log store; faults of other layers write none."""
    fault = run.injected()[node]
    if (Hop.IN_LOG_STORE, node) in run.hops or fault.layer != "kernel log":
        return
    try:
        found = lines_with(run, node, "NVRM", since=fault.written_at - _CLOCK_MARGIN)
    except AdapterError as error:
        if not run.log_store_problem:
            run.log_store_problem = True
            run.problem(f"the log store could not be asked: {error}", "the hop into it stays unmeasured")
        return
    written = [line for line in found if any(line.text.split("] ", 1)[-1] in proof for proof in fault.evidence)]
    if written or found:
        run.hop(Hop.IN_LOG_STORE, node, datetime.now(UTC), "first found by query_range")
