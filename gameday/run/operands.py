"""The GPU operator's operands on a target: they keep GPUs open, and are away while one is reset."""

from __future__ import annotations

from typing import Any

from gameday.cluster.operands import keeps_away, let_return, pods_of, running_operands
from gameday.errors import ForeignPauseError, RefusedError
from gameday.run.drain import pods_to_drain
from gameday.run.run import ReadOnlyRun
from gameday.values.nodes import Taint

UPGRADE_HINT = "run when the driver upgrade there is over"
"""The hint for a node with an operand that somebody else has sent away."""


def movable_operands(run: ReadOnlyRun, node: str) -> tuple[str, ...]:
    """Return the labels of the operands that a reset on a followed node sends away; empty without an operator.

    Raises:
        ForeignPauseError: Somebody else has sent one of them away.
    """
    now = run.nodes.now(node)
    return running_operands(now.labels) if now else ()


def operand_pods(run: ReadOnlyRun, node: str, labels: tuple[str, ...]) -> list[Any]:
    """Return the pods (V1Pod) of these operands on a followed node."""
    return pods_of(run.nodes.pods_on(node), labels)


def expected_taints_that_keep_operands_away(run: ReadOnlyRun, node: str) -> tuple[Taint, ...]:
    """Return the taints that the plan expects and that would keep operands of a followed node away.

    Raises:
        ForeignPauseError: Somebody else has sent one of them away.
    """
    taints = [Taint(key=one.key, value=one.value, effect=one.effect) for one in run.plan.expect.taints]
    return keeps_away(operand_pods(run, node, movable_operands(run, node)), taints)


def refuse_operands_that_would_stay_away(run: ReadOnlyRun, node: str) -> None:
    """Refuse a plan that sends operands off a followed node to which they could not return in quarantine.

    Raises:
        RefusedError: The quarantine would keep them away, or somebody else has sent one away.
    """
    try:
        taints = expected_taints_that_keep_operands_away(run, node)
    except ForeignPauseError as error:
        raise RefusedError(f"no GPU of {node} can be reset or removed: {error}", UPGRADE_HINT) from None
    if taints:
        listed = ", ".join(map(str, taints))
        why = f"the GPU operator's operands would not return to {node}: they do not tolerate {listed}"
        raise RefusedError(why, let_return(taints))


def uids_before_reset(run: ReadOnlyRun, node: str) -> set[str]:
    """Return the UIDs of the pods that have left a followed node when its GPU is reset or removed.

    These are the drained pods and the operands.

    Raises:
        RefusedError: Somebody else has sent an operand away.
    """
    try:
        operands = operand_pods(run, node, movable_operands(run, node))
    except ForeignPauseError as error:
        raise RefusedError(f"no GPU of {node} can be reset or removed: {error}", UPGRADE_HINT) from None
    return {pod.uid for pod in pods_to_drain(run, node)} | {pod.metadata.uid for pod in operands}
