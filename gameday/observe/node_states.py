"""Note the targets' states: while the fault is in, and once everything is back."""

from __future__ import annotations

from collections.abc import Collection

from gameday.cluster.nodes import REASON_ANNOTATION, snapshot
from gameday.errors import AdapterError
from gameday.history.events import NodeSeen
from gameday.run.run import Run
from gameday.values.nodes import NodeSnapshot

# Our controller takes its reason off a node one or two requests after the taint is gone. If the API server was away, it
# watches again within 5 s (gameday/cluster/watch.py) and writes again within 10 s (`gameday_health.worker`).
_TIDY_TIMEOUT_S = 20.0


def note_nodes_during(run: Run, nodes: Collection[str]) -> None:
    """Note every target as its watch last saw it."""
    for node in nodes:
        if seen := run.nodes.now(node):
            run.note(NodeSeen(phase="during", snapshot=seen))


def note_nodes_after(run: Run, nodes: Collection[str]) -> None:
    """Read every target again and note it, once others had time to tidy up after the quarantine was lifted.

    If a node cannot be read, that becomes a problem in the history, not an error.
    """
    for node in nodes:
        if run.ledger.restorations_of(node):
            _await_tidy(run, node)
        try:
            run.note(NodeSeen(phase="after", snapshot=snapshot(run.kubernetes.node(node))))
        except AdapterError as error:
            run.problem(f"node {node} could not be read: {error}")


def _await_tidy(run: Run, node: str) -> None:
    """Wait until the detector's reason and the cordon's taint are gone; a node that stays in quarantine keeps both."""

    def tidy() -> bool:
        now = run.nodes.now(node)
        return now is None or _is_tidy(run, now)

    run.nodes.wait_until(node, tidy, _TIDY_TIMEOUT_S)


def _is_tidy(run: Run, now: NodeSnapshot) -> bool:
    expect, before = run.plan.expect, run.nodes.before(now.node).labels
    keys = {label.key for label in expect.labels} - set(expect.labels_left)
    labels_back = all(now.labels.get(key) == before.get(key) for key in keys)
    return labels_back and REASON_ANNOTATION not in now.annotations and not now.lingering_cordon
