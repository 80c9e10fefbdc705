"""Carry out an entry's undo and verify it by reading; the flow's last act and the reaper both use it.

Every undo is idempotent, removes only what we added, and continues after a failure. An undo that cannot be verified is
UNKNOWN.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from kubernetes.client import V1Node

from gameday.agent.security import api_account_of, security_of
from gameday.agent.task import InjectedNote, PriorNote, UndoTask, notes_in
from gameday.cluster.gpu_class import change_gpu_class
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.lab_control import configure_lab
from gameday.cluster.manifests import agent_pod
from gameday.cluster.nodes import cordon_written_at, snapshot, taints_written_at
from gameday.cluster.operands import AWAY, bring_back, send_away
from gameday.cluster.pods import PodFollower
from gameday.errors import ControlError, KubernetesError
from gameday.ledger.entries import (
    BringBackOperands,
    DeleteJob,
    DeletePod,
    Entry,
    PackageUndo,
    RestoreGpuClasses,
    RestoreLab,
    RestoreNode,
    TakeOutFault,
    UndoResult,
)
from gameday.ledger.ledger import Ledger, ledger_name
from gameday.ledger.termination_message import termination_message
from gameday.text import printable
from gameday.values.nodes import Taint
from gameday.values.results import Cleanliness

# After a signal an undo has to end within the 30 s that Prefect grants a cancelled run (docs/sources.md, Prefect:
# cancel, kill, lost server). An agent that needs longer continues by itself (its grace period is 60 s), the entry stays
# open, and the reaper looks at it later.
_GONE_WITHIN_S = 15.0
_SECOND_AGENT_DEADLINE = timedelta(seconds=60)
# The same time as the first agent had to start (gameday/run/agents.py); it may have to pull its image as well.
_SECOND_AGENT_TIMEOUT_S = 60.0
_SECOND_AGENT_AFTER_SIGNAL_S = 10.0


def undo_entry(
    kubernetes: Kubernetes,
    entry: Entry,
    run_id: str,
    pods: PodFollower,
    node_seen: Any | None = None,
    *,
    ledger: Ledger | None = None,
    after_signal: bool = False,
) -> UndoResult:
    """Undo one entry and verify it.

    Args:
        kubernetes: The cluster.
        entry: The entry to undo.
        run_id: The run that made it.
        pods: Follows the run's pods.
        node_seen: The entry's node (V1Node) as a watch last saw it, which saves a read before the write.
        ledger: The entry's ledger, which keeps what a second agent needs, and shows whether a node's faults are out;
            None for a stray pod.
        after_signal: A signal ended the run, and its sender will not wait long: wait less for a second agent.

    Returns:
        The state that was read back; UNKNOWN with the reason if the cluster does not answer, which raises nothing.
    """
    try:
        match entry.undo:
            case TakeOutFault() as undo:
                take_out = partial(
                    _take_out_fault, kubernetes, entry, undo, run_id, pods, ledger, after_signal=after_signal
                )
                return (
                    _with_operands_away(kubernetes, entry.node or "", undo, pods, take_out)
                    if undo.operands
                    else take_out()
                )
            case RestoreNode() as restore:
                fault = ledger.fault_on(entry.node) if ledger else Cleanliness.CLEAN
                since = ledger.created if ledger else None
                return _restore_unless_faulty(kubernetes, entry.node or "", restore, fault, since, node_seen)
            case BringBackOperands(labels=labels):
                return _bring_back_operands(kubernetes, entry.node or "", labels)
            case RestoreLab() | RestoreGpuClasses() as change:
                lab = kubernetes.profile.lab_control
                return _restore_lab(lab) if isinstance(change, RestoreLab) else _restore_gpu_classes(kubernetes, change)
            case other:
                return _delete(kubernetes, other, run_id, pods)
    except KubernetesError as error:
        return UndoResult(Cleanliness.UNKNOWN, (str(error),))


def _delete(
    kubernetes: Kubernetes,
    undo: DeletePod | DeleteJob | PackageUndo,
    run_id: str,
    pods: PodFollower,
) -> UndoResult:
    """Delete what the run made, or undo what a package did. Raises KubernetesError."""
    match undo:
        case DeletePod(pod=name):
            return delete_pod(kubernetes, name, pods)
        case DeleteJob(job=name):
            return _delete_job(kubernetes, name, pods)
        case PackageUndo():
            return undo.carry_out(kubernetes, run_id, pods)


def delete_pod(kubernetes: Kubernetes, name: str, pods: PodFollower) -> UndoResult:
    uid = kubernetes.delete_pod(name)
    gone = pods.wait_gone(name, uid, _GONE_WITHIN_S)
    return _deletion(gone, f"pod {name} deleted", f"pod {name} is still ending after {_GONE_WITHIN_S:g} s")


def _delete_job(kubernetes: Kubernetes, name: str, pods: PodFollower) -> UndoResult:
    kubernetes.delete_job(name)

    def is_gone() -> bool:
        return pods.wait_synced(0) and not any(pod.owner_job == name for pod in pods.present())

    gone = pods.wait(is_gone, _GONE_WITHIN_S)
    return _deletion(gone, f"job {name} and its pods deleted", f"pods of job {name} end for over {_GONE_WITHIN_S:g} s")


def _bring_back_operands(kubernetes: Kubernetes, node: str, labels: tuple[str, ...]) -> UndoResult:
    """Put the labels back. If somebody else has paused an operand on top of ours, its label waits for that."""
    try:
        found = bring_back(kubernetes, node, labels)
    except KubernetesError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return _node_gone(node)
        raise
    lines = tuple(f"label {label}: {value or 'not there'}" for label, value in found.items())
    paused = any(AWAY in value for value in found.values())
    return UndoResult(Cleanliness.UNKNOWN if paused else Cleanliness.CLEAN, lines)


def _with_operands_away(
    kubernetes: Kubernetes, node: str, fault: TakeOutFault, pods: PodFollower, take_out: Callable[[], UndoResult]
) -> UndoResult:
    """Take a fault out while operands that keep its GPU open are away; the agent waits until they have closed it.

    They stay away, and the entry stays open, until it is known that the fault is out: the next attempt needs that.
    """
    message = termination_message(pods, fault.pod)
    if message is None or message.cleanliness is not Cleanliness.CLEAN:
        try:
            send_away(kubernetes, node, fault.operands)
        except KubernetesError as error:
            if error.status != HTTPStatus.NOT_FOUND:  # a node that is gone has no operands, either
                raise
    result = take_out()
    if result.cleanliness is Cleanliness.UNKNOWN:
        return replace(result, evidence=(*result.evidence, "the GPU operator's operands stay away until it is out"))
    back = _bring_back_operands(kubernetes, node, fault.operands)
    worse = result.cleanliness if result.cleanliness is Cleanliness.DIRTY else back.cleanliness
    return replace(result, cleanliness=worse, evidence=(*result.evidence, *back.evidence))


def _restore_lab(lab: Path | None) -> UndoResult:
    """Restart the lab's components with the settings it was started with; it answers when they are ready."""
    if lab is None:
        return UndoResult(Cleanliness.UNKNOWN, ("this profile has no lab_control: use the profile of the lab",))
    try:
        configure_lab(lab, {})
    except ControlError as error:
        return UndoResult(Cleanliness.UNKNOWN, (f"the lab does not take its own settings back: {error}",))
    return UndoResult(Cleanliness.CLEAN, ("the lab runs with the settings that it was started with",))


def _restore_gpu_classes(kubernetes: Kubernetes, undo: RestoreGpuClasses) -> UndoResult:
    """Put back the labels that are still as the run set them; those that others have changed are left alone."""
    counts: Counter[str] = Counter()
    for node, ours in undo.set_to.items():
        before = undo.before.get(node, "")
        try:
            value, _ = change_gpu_class(kubernetes, node, partial(_class_before, before=before, ours=ours))
        except KubernetesError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            counts["gone"] += 1
            continue
        counts["as before" if value == before else "left alone: somebody else has set them"] += 1
    return UndoResult(Cleanliness.CLEAN, tuple(f"{count} nodes {what}" for what, count in counts.items()))


def _class_before(now: str, before: str, ours: str) -> str:
    return before if now == ours else now


def _deletion(gone: bool, if_gone: str, if_not: str) -> UndoResult:
    """Return the result of a deletion; an unfinished one is UNKNOWN, not DIRTY, because it may still finish."""
    return UndoResult(Cleanliness.CLEAN, (if_gone,)) if gone else UndoResult(Cleanliness.UNKNOWN, (if_not,))


def _take_out_fault(
    kubernetes: Kubernetes,
    entry: Entry,
    fault: TakeOutFault,
    run_id: str,
    pods: PodFollower,
    ledger: Ledger | None,
    *,
    after_signal: bool,
) -> UndoResult:
    if fault.goes_with_node and kubernetes.node_or_none(entry.node or "") is None:
        # No kubelet is left to end the injector's pod.
        kubernetes.delete_pod(fault.pod, grace_period_s=0)
        why = f"node {entry.node} is no longer there: the cluster took the fault away with it"
        return UndoResult(Cleanliness.CLEAN, (why,))
    before = pods.seen(fault.pod)
    by_deadline = before is not None and before.reason == "DeadlineExceeded"
    message = termination_message(pods, fault.pod)
    was_killed = message is None and before is not None and before.ended
    state = (_logged_undo_state(kubernetes, fault.pod) if was_killed else {}) | fault.undo_state
    if ledger and state != fault.undo_state:
        # The log goes with its pod: keep its content where the next attempt finds it.
        ledger.update_undo(entry, fault.model_copy(update={"undo_state": state}))
    uid = kubernetes.delete_pod(fault.pod)
    if not pods.wait_gone(fault.pod, uid, _GONE_WITHIN_S):
        why = f"injector pod {fault.pod} is still undoing after {_GONE_WITHIN_S:g} s"
        return UndoResult(Cleanliness.UNKNOWN, (why,))
    outcome = termination_message(pods, fault.pod)
    if outcome is not None and outcome.cleanliness is Cleanliness.CLEAN:
        return UndoResult(Cleanliness.CLEAN, outcome.evidence, by_deadline, outcome)
    why = f"injector reported {outcome.cleanliness}: {outcome.error}" if outcome else "injector left no message"
    if outcome and ledger and outcome.undo_state.items() - state.items():
        # If the ledger cannot be written, the second agent still starts, because it gets the state directly.
        with suppress(KubernetesError):
            ledger.update_undo(entry, fault.model_copy(update={"undo_state": state | outcome.undo_state}))
    state |= outcome.undo_state if outcome else {}
    timeout_s = _SECOND_AGENT_AFTER_SIGNAL_S if after_signal else _SECOND_AGENT_TIMEOUT_S
    second = _send_second_agent(kubernetes, entry, fault, run_id, pods, state, why, timeout_s)
    return replace(second, injector=outcome)


def _logged_undo_state(kubernetes: Kubernetes, pod: str) -> dict[str, str]:
    """Return the prior values that a killed agent had printed for its successor; its log goes with its pod."""
    try:
        log = kubernetes.pod_log(pod)
    except KubernetesError:
        return {}
    state: dict[str, str] = {}
    for prior in notes_in(log, PriorNote):
        state |= prior.undo_state
    for injected in notes_in(log, InjectedNote):
        state |= injected.undo_state
    return state


def _send_second_agent(
    kubernetes: Kubernetes,
    entry: Entry,
    fault: TakeOutFault,
    run_id: str,
    pods: PodFollower,
    state: dict[str, str],
    why: str,
    timeout_s: float,
) -> UndoResult:
    """Send an agent that only undoes, and return what it read back; `why` is the first agent's failure."""
    node, name = entry.node or "", f"{fault.pod}-undo"
    if kubernetes.node_or_none(node) is None:
        forget = f"kubectl -n {kubernetes.profile.namespace} delete configmap {ledger_name(run_id)}"
        hint = f"if its machine is gone as well, the fault is gone with it, and this forgets it: {forget}"
        return UndoResult(
            Cleanliness.UNKNOWN, (why, f"node {node} is deleted, and no second agent can run there", hint)
        )
    task = UndoTask(run_id=run_id, node=node, gpu=fault.gpu, fault=fault.fault, undo_state=state)
    try:
        security, account = security_of(task), api_account_of(task)
    except ValueError as error:
        hint = "run `gameday reap` in an installation with the package and version that put this fault in"
        return UndoResult(Cleanliness.UNKNOWN, (why, f"no second agent can be sent: {printable(str(error))}", hint))
    manifest = agent_pod(
        name,
        task=task.model_dump_json(),
        role="undo",
        run_id=run_id,
        node=node,
        profile=kubernetes.profile,
        deadline=_SECOND_AGENT_DEADLINE,
        security=security,
        account=account,
    )
    # Another reaper's second agent may already be at work: its result counts as well.
    uid: str | None = None
    try:
        uid = kubernetes.create_pod(manifest)
    except KubernetesError as error:
        if error.status != HTTPStatus.CONFLICT:
            raise

    def ended() -> bool:
        seen = pods.seen(name)
        return seen is not None and seen.ended and uid in (None, seen.uid)

    pods.wait(ended, timeout_s)
    pods.wait_gone(name, kubernetes.delete_pod(name), _GONE_WITHIN_S)
    outcome = termination_message(pods, name) if ended() else None
    if outcome is None:
        return UndoResult(Cleanliness.UNKNOWN, (why, "a second agent left no message"))
    if not outcome.ok and outcome.cleanliness is Cleanliness.CLEAN:
        # It never began to undo: for example, its image is too old to read its task.
        return UndoResult(Cleanliness.UNKNOWN, (why, f"a second agent undid nothing: {outcome.error}"))
    return UndoResult(outcome.cleanliness, (why, *outcome.evidence))


def _restore_unless_faulty(
    kubernetes: Kubernetes,
    node: str,
    restore: RestoreNode,
    fault: Cleanliness,
    since: datetime | None,
    node_seen: Any | None,
) -> UndoResult:
    """Restore a node if its fault is out and its quarantine is not older than the ledger, created at `since`."""
    if fault is not Cleanliness.CLEAN:
        return _keep_quarantined(kubernetes, node, restore, fault)
    found = kubernetes.node_or_none(node) if since else None
    if found and since and (older := _older_quarantine(found, restore, since)):
        why = f"{older} on {node} is older than this ledger, so that no run of this ledger caused it"
        return UndoResult(Cleanliness.DIRTY, (f"left alone: {why}; once its owner has lifted it, reap again",))
    return _restore_node(kubernetes, node, restore, node_seen)


def _restore_node(kubernetes: Kubernetes, node: str, restore: RestoreNode, node_seen: Any | None) -> UndoResult:
    try:
        before, after = kubernetes.restore_node(node, restore.removes, restore.unschedulable, node_seen)
    except KubernetesError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return _node_gone(node)
        raise
    lines = (
        f"read before: taints {_names(before.taints)}, unschedulable {before.unschedulable}",
        f"removed: {_names(taint for taint in before.taints if restore.removes(taint))}",
        f"read after: taints {_names(after.taints)}, unschedulable {after.unschedulable}",
    )
    return UndoResult(Cleanliness.CLEAN if restore.is_met_by(after) else Cleanliness.DIRTY, lines)


def _older_quarantine(node: V1Node, restore: RestoreNode, since: datetime) -> str:
    """Return the part of a node's quarantine that this undo would lift but that is older than the run; empty if none.

    The API server dates both, in whole seconds: the ledger, and the last write of the taints and of the cordon.
    """
    now, tainted_at, cordoned_at = snapshot(node), taints_written_at(node), cordon_written_at(node)
    if any(map(restore.removes, now.taints)) and tainted_at and tainted_at < since:
        return f"the taint {_names(filter(restore.removes, now.taints))}"
    lifts_cordon = restore.unschedulable is False and now.unschedulable
    return "the cordon" if lifts_cordon and cordoned_at and cordoned_at < since else ""


def _keep_quarantined(kubernetes: Kubernetes, node: str, restore: RestoreNode, fault: Cleanliness) -> UndoResult:
    """Leave the quarantine of a node that may still have its fault; the result is the fault's own, DIRTY or UNKNOWN."""
    found = kubernetes.node_or_none(node)
    if found is None:
        return _node_gone(node)
    now = snapshot(found)
    read = f"read: taints {_names(now.taints)}, unschedulable {now.unschedulable}"
    if restore.is_met_by(now):
        return UndoResult(Cleanliness.CLEAN, ("nothing to remove", read))
    return UndoResult(fault, ("kept out of service: the fault is not provably out", read))


def _node_gone(node: str) -> UndoResult:
    return UndoResult(Cleanliness.CLEAN, (f"node {node} is no longer there",))


def _names(taints: Iterable[Taint]) -> str:
    return ", ".join(map(str, taints)) or "none"
