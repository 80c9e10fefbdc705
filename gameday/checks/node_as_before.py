"""At the end the node must be as it was: the quarantine taint gone, nothing of ours left, not cordoned."""

from __future__ import annotations

from gameday.checks.facts import absence, some, target_nodes
from gameday.checks.residue import differences, snapshot
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import NodeSeen, Step
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan

ORDER = 100


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    return [_of(history, node) for node in target_nodes(history)]


def _of(history: History, node: str | None) -> Verdict:
    before, after = snapshot(history, node, "before"), snapshot(history, node, "after")
    changed = differences(before, after) if before and after else []
    if before and after:
        status, why = (Status.BROKEN if changed else Status.HELD), some([str(change) for change in changed])
    else:
        missing = "before" if before is None else "after"
        # A snapshot that was never taken cannot show a residue, whatever the step says of itself.
        status, why = Status.UNKNOWN, absence(history, Step.QA_NODE, f"the node's state {missing} the run")[1]
    return Verdict(
        check="node-as-before",
        expectation=f"{node or 'The target'} ends as it was: taints, labels, our annotations, schedulable",
        bound="0 differences",
        measured=f"{len(changed)} difference{'' if len(changed) == 1 else 's'}" if before and after else "",
        status=status,
        why=why,
        evidence=tuple(
            r.seq for r, e in history.with_times(NodeSeen) if e.snapshot.node == node and e.phase != "during"
        ),
        node=node,
    )
