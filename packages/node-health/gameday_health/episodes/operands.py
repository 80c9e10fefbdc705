"""The GPU operator's operands on a node under repair: sent away before a GPU reset, and always brought back.

Their labels are in the record before they are changed on the node, so that a process that takes over brings them
back.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from gameday.cluster.operands import (
    AWAY,
    bring_back,
    keeps_away,
    let_return,
    pods_of,
    running_operands,
    send_away,
)
from gameday.cluster.watch import Follower
from gameday.errors import ForeignPauseError, KubernetesError
from gameday.values.nodes import Taint
from gameday_health.episodes.work import EpisodeWork


def send_operands_away(work: EpisodeWork, within_s: float) -> str:
    """Send away the operands that keep GPUs open, and wait until their pods are gone.

    Nothing is moved if the node's taints would keep an operand away for good.

    Returns:
        Why no GPU can be reset; empty if the operands are away, or if the operator has none on this node.

    Raises:
        InterruptedStepError: The node is gone, or a person took over or stopped the repair.
        LeaseLostError: The claim is lost.
        KubernetesError: The node cannot be written.
    """
    node = work.episode.node
    found = work.api.node(node) or {}
    try:
        labels = running_operands((found.get("metadata") or {}).get("labels") or {})
    except ForeignPauseError as error:
        return str(error)
    if not labels:
        return ""
    pods = work.kubernetes.core.list_pod_for_all_namespaces
    with Follower(pods, field_selector=f"spec.nodeName={node}") as followed:
        followed.require_synced()
        taints = [Taint.model_validate(one, extra="ignore") for one in (found.get("spec") or {}).get("taints") or ()]
        if kept := keeps_away(pods_of(followed.objects(), labels), taints):
            return f"operands would not return: they do not tolerate {', '.join(map(str, kept))}; {let_return(kept)}"
        work.save(work.episode.model_copy(update={"operands_away": labels}))
        send_away(work.kubernetes, node, labels)
        if work.wait(lambda: not pods_of(followed.objects(), labels), within_s):
            return ""
        left: Sequence[str] = [pod.metadata.name for pod in pods_of(followed.objects(), labels)]
    return f"the GPU operator's operands have not left: {', '.join(left)}"


def bring_operands_back(work: EpisodeWork) -> str:
    """Bring back every operand that the record says is away; return why some are still away, or an empty string.

    Raises:
        LeaseLostError: The claim is lost.
        KubernetesError: The node cannot be written; it is tried again.
    """
    labels = work.episode.operands_away
    if not labels:
        return ""
    paused: dict[str, str] = {}
    try:
        after = bring_back(work.kubernetes, work.episode.node, labels)
        paused = {label: value for label, value in after.items() if AWAY in value}
    except KubernetesError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
    work.save(work.episode.model_copy(update={"operands_away": tuple(paused)}))
    listed = ", ".join(f"{label} is {value}" for label, value in paused.items())
    return f"somebody else has paused operands, too: {listed}" if paused else ""
