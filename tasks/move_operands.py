"""Send the GPU operator's operands off a node before its GPU is reset or removed, and bring them back afterwards."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from gameday.cluster.operands import keeps_away, let_return, send_away
from gameday.errors import ForeignPauseError, StepFailedError
from gameday.ledger.entries import BringBackOperands, Entry
from gameday.run.operands import UPGRADE_HINT, movable_operands, operand_pods
from gameday.run.run import Run
from gameday.run.steps import StepResult
from gameday.run.targets import ChosenTarget
from gameday.values.results import Cleanliness

GONE_WITHIN = timedelta(seconds=120)
"""Time for the operands to go: their grace period is the default of 30 s, and the DaemonSet controller may lag."""


def require_operands_to_return(run: Run, node: str) -> None:
    """Check that the taints of a followed node, including those of others, let its operands return.

    Raises:
        StepFailedError: A taint does not, and the hint says how to change that; or somebody else sent an operand away.
    """
    now = run.nodes.now(node)
    try:
        pods = operand_pods(run, node, movable_operands(run, node))
    except ForeignPauseError as error:
        raise StepFailedError(f"{node}: {error}", UPGRADE_HINT) from None
    if now and (taints := keeps_away(pods, now.taints)):
        listed = ", ".join(map(str, taints))
        raise StepFailedError(f"the operands would not return: they do not tolerate {listed}", let_return(taints))


def send_operands_away(run: Run, target: ChosenTarget, name: str, work: timedelta) -> Entry | None:
    """Send away the operands that keep GPUs open; return once their pods are gone.

    Args:
        run: The run.
        target: The node.
        name: Name of the entry in the ledger.
        work: Time that the repair or injection may then take.

    Returns:
        The entry that brings them back when it is undone; None if the operator has none on this node.

    Raises:
        StepFailedError: Somebody else has sent one away, or a pod stays.
        KubernetesError: The ledger or the node cannot be written.
    """
    node = target.node
    try:
        labels = movable_operands(run, node)
    except ForeignPauseError as error:
        raise StepFailedError(f"{node}: {error}", UPGRADE_HINT) from None
    if not labels:
        return None
    act = f"send the GPU operator's operands off {node}"
    undo = BringBackOperands(labels=labels)
    entry = run.intend(f"{name}-{target.index}", act, undo, node, GONE_WITHIN + work)
    send_away(run.kubernetes, node, labels)

    def are_gone() -> bool | None:
        return None if operand_pods(run, node, labels) else True

    if not run.wait(f"the GPU operator's operands to leave {node}", GONE_WITHIN, are_gone):
        left = ", ".join(pod.metadata.name for pod in operand_pods(run, node, labels))
        run.undo(entry)
        raise StepFailedError(f"operands did not leave {node} within {GONE_WITHIN.total_seconds():g} s: {left}")
    return entry


def bring_operands_back(run: Run, result: StepResult, target: ChosenTarget, entry: Entry) -> None:
    """Bring the operands back; wait until all are Ready and the node offers its GPUs as before."""
    assert isinstance(entry.undo, BringBackOperands)
    node, labels = target.node, entry.undo.labels
    if run.undo(entry) is not Cleanliness.CLEAN:
        result.mark_broken(f"the GPU operator's labels on {node} are not as they were")
        return

    def are_back() -> bool | None:
        now, pods = run.nodes.now(node), operand_pods(run, node, labels)
        offered = now is not None and now.allocatable_gpus == target.before.allocatable_gpus
        return True if offered and pods and all(map(_is_ready, pods)) else None

    within = run.plan.recover.within
    if not run.wait(f"the GPU operator's operands to be back on {node}", within, are_back):
        now = run.nodes.now(node)
        taints = ", ".join(map(str, now.taints)) if now and now.taints else "no taint"
        result.mark_broken(
            f"the GPU operator's operands are not back on {node} after {within.total_seconds():g} s; it has {taints}"
        )


def _is_ready(pod: Any) -> bool:
    conditions = (pod.status.conditions if pod.status else None) or []
    return any(one.type == "Ready" and one.status == "True" for one in conditions)
