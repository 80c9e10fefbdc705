"""At the end the node must be as it was: quarantine gone, conditions and GPUs back, nothing of ours left."""

from __future__ import annotations

from gameday.checks.facts import first_few, in_place_of, judge_absence, repair_stop, target_nodes
from gameday.checks.node_diff import NodeDifference, left_to_owners, node_differences, node_snapshot
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import NodeSeen
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.values.nodes import NodeSnapshot
from gameday.values.results import Step

ORDER = 100


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    nodes = target_nodes(history)
    if plan.recover.is_hands_off:
        # A node that replaced the target has other labels, and one that is to stay out of service is not as it was.
        nodes = tuple(node for node in nodes if in_place_of(history, node) == node)
        nodes = nodes if plan.recover.gives_node_back else ()
    return [_of(plan, history, node) for node in nodes]


def _of(plan: Plan, history: History, node: str | None) -> Verdict:
    before, after = node_snapshot(history, node, "before"), node_snapshot(history, node, "after")
    changed = _differences(plan, before, after) if before and after else []
    if stop := repair_stop(history, node):
        status, why = Status.UNKNOWN, stop
    elif before and after:
        status, why = (Status.BROKEN if changed else Status.HELD), first_few([str(change) for change in changed])
        left = {(one.node, one.what) for one in left_to_owners(history)}
        if changed and all((one.node, one.what) in left for one in changed):
            status, why = Status.UNKNOWN, f"{why}; somebody else did that during the run, and it is left to them"
        if len(changed) == 1 and (taint := after.lingering_cordon) and taint not in before.taints:
            # The control plane takes this taint off late. It is no residue, and it was not seen to go.
            status, why = Status.UNKNOWN, f"{changed[0]}; it is for the node lifecycle controller to take off"
    else:
        missing = "before" if before is None else "after"
        # A snapshot that was never taken cannot show a residue, however the step ended.
        status, why = Status.UNKNOWN, judge_absence(history, Step.QA_NODE, f"the node's state {missing} the run")[1]
    return Verdict(
        check="node-as-before",
        expectation=f"{node or 'The target'} ends as it was: taints, labels, conditions, our annotations, GPUs, cordon",
        bound="0 differences",
        measured=f"{len(changed)} difference{'' if len(changed) == 1 else 's'}" if before and after else "",
        status=status,
        step=None if before and after else Step.QA_NODE,
        why=why,
        evidence=tuple(record.seq for record, seen in history.about(NodeSeen, node) if seen.phase != "during"),
        node=node,
    )


def _differences(plan: Plan, before: NodeSnapshot, after: NodeSnapshot) -> list[NodeDifference]:
    """Return the node's differences, without those that the plan lets stay."""
    left = {f"label {key}" for key in plan.expect.labels_left}
    found = [one for one in node_differences(before, after) if one.what not in left]
    falls = plan.expect.allocatable_falls
    if before.allocatable_gpus != after.allocatable_gpus and not (falls and falls.returns_within is None):
        gpus = ["" if one is None else str(one) for one in (before.allocatable_gpus, after.allocatable_gpus)]
        found.append(NodeDifference(before.node, "allocatable GPUs", gpus[0], gpus[1], ours=False))
    return found + _conditions(plan, before, after)


def _conditions(plan: Plan, before: NodeSnapshot, after: NodeSnapshot) -> list[NodeDifference]:
    """Return the conditions that differ; only their writer may take them back.

    A new condition is a difference only if it reports the fault: a detector may also add one to report that something
    is well, which does the node no harm.
    """
    trouble = {(one.type, str(one.status)) for one in plan.expect.conditions}
    stays = {one.type for one in plan.expect.conditions if one.clears_within is None}
    return [
        NodeDifference(
            before.node,
            f"condition {name}",
            before.conditions.get(name, ""),
            after.conditions.get(name, ""),
            ours=False,
        )
        for name in sorted(before.conditions.keys() | after.conditions.keys())
        if before.conditions.get(name) != after.conditions.get(name)
        and name not in stays
        and (name in before.conditions or (name, after.conditions[name]) in trouble)
    ]
