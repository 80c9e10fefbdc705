"""Carry out an entry's undo and verify it by reading: used by the flow's last act and by the reaper alike.

Every undo is idempotent, removes only what we added, and goes on after a
failure; what it cannot verify it calls unknown.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from gameday.agent.security import security_of
from gameday.agent.task import AgentResult, InjectedNote, PriorNote, UndoTask, notes_in
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.manifests import agent_pod
from gameday.cluster.nodes import snapshot
from gameday.cluster.pods import PodFollower
from gameday.errors import KubernetesError
from gameday.ledger.entries import DeleteJob, DeletePod, Entry, RestoreNode, TakeOutFault
from gameday.ledger.ledger import Ledger
from gameday.values.results import Cleanliness

# After a signal an undo has to end inside the 30 s Prefect grants a cancelled run (docs/sources.md, Prefect: cancel,
# kill, lost server). An agent that needs longer goes on by itself (its grace is 60 s), the entry stays open, and the
# reaper looks at it later.
_GONE_WITHIN_S = 15.0
_SECOND_AGENT_DEADLINE = timedelta(seconds=60)
# As long as the first agent had to start (run/agents.py), for it may have to wait for its image as well.
_SECOND_AGENT_WITHIN_S = 60.0
_SECOND_AGENT_AFTER_SIGNAL_S = 10.0


@dataclass(frozen=True)
class Undone:
    cleanliness: Cleanliness
    evidence: tuple[str, ...]
    by_deadline: bool = False


def undo_entry(
    kubernetes: Kubernetes,
    entry: Entry,
    run_id: str,
    pods: PodFollower,
    known: Any | None = None,
    *,
    ledger: Ledger | None = None,
    after_signal: bool = False,
) -> Undone:
    """Undo one entry; never raises for a cluster that does not answer, but says unknown and why.

    `known`: the entry's node as a watch last saw it, which saves a reading before the write. `ledger`: the entry's,
    which learns what a second agent has to know, and says whether the faults on a node are out; a stray has none.
    `after_signal`: somebody's own limit is running, so that a second agent is waited for less long.
    """
    try:
        match entry.undo:
            case DeletePod(pod=name):
                return _delete_pod(kubernetes, name, pods)
            case DeleteJob(job=name):
                return _delete_job(kubernetes, name, pods)
            case TakeOutFault() as fault:
                return _take_out(kubernetes, entry, fault, run_id, pods, ledger, after_signal=after_signal)
            case RestoreNode() as restore:
                fault_is = ledger.fault_on(entry.node) if ledger else Cleanliness.CLEAN
                if fault_is is not Cleanliness.CLEAN:
                    return _keep_out(kubernetes, entry.node or "", restore, fault_is)
                return _restore(kubernetes, entry.node or "", restore, known)
    except KubernetesError as error:
        return Undone(Cleanliness.UNKNOWN, (str(error),))


def _delete_pod(kubernetes: Kubernetes, name: str, pods: PodFollower) -> Undone:
    uid = kubernetes.delete_pod(name)
    gone = pods.wait_gone(name, uid, _GONE_WITHIN_S)
    return _verified(gone, f"pod {name} deleted", f"pod {name} is still ending after {_GONE_WITHIN_S:g} s")


def _delete_job(kubernetes: Kubernetes, name: str, pods: PodFollower) -> Undone:
    kubernetes.delete_job(name)

    def none_left() -> bool:
        return pods.wait_synced(0) and not any(pod.owner_job == name for pod in pods.present())

    gone = pods.wait(none_left, _GONE_WITHIN_S)
    return _verified(gone, f"job {name} and its pods deleted", f"pods of job {name} end for over {_GONE_WITHIN_S:g} s")


def termination_message(pods: PodFollower, name: str) -> AgentResult | None:
    """What the agent in the pod said when it ended; None where it said nothing that can be read."""
    seen = pods.seen(name)
    return AgentResult.parse(seen.termination) if seen and seen.termination else None


def went_in(pods: PodFollower, injector: str) -> datetime | None:
    """When the fault of an injector went in that has ended; None where it did not, or where no such pod was seen.

    One that was ended while it started tells it in its last word; of one that left none nothing is known but that its
    fault is not in after now.
    """
    word = termination_message(pods, injector)
    if word and word.written_at:
        return word.written_at
    return datetime.now(UTC) if (word.evidence if word else pods.seen(injector)) else None


def _verified(ok: bool, done: str, left: str) -> Undone:
    """What was told to go and is not gone yet is unknown, not dirty: it may end by itself, and may be asked again."""
    return Undone(Cleanliness.CLEAN, (done,)) if ok else Undone(Cleanliness.UNKNOWN, (left,))


def _take_out(
    kubernetes: Kubernetes,
    entry: Entry,
    fault: TakeOutFault,
    run_id: str,
    pods: PodFollower,
    ledger: Ledger | None,
    *,
    after_signal: bool,
) -> Undone:
    before = pods.seen(fault.pod)
    by_deadline = before is not None and before.reason == "DeadlineExceeded"
    word = termination_message(pods, fault.pod)
    was_killed = word is None and before is not None and before.ended
    state = (_undo_state_in_log(kubernetes, fault.pod) if was_killed else {}) | fault.undo_state
    if ledger and state != fault.undo_state:
        # The log goes with its pod: what it said has to stand where the next attempt finds it.
        ledger.update_undo(entry, fault.model_copy(update={"undo_state": state}))
    uid = kubernetes.delete_pod(fault.pod)
    if not pods.wait_gone(fault.pod, uid, _GONE_WITHIN_S):
        return Undone(Cleanliness.UNKNOWN, (f"injector pod {fault.pod} is still undoing after {_GONE_WITHIN_S:g} s",))
    outcome = termination_message(pods, fault.pod)
    if outcome is not None and outcome.cleanliness is Cleanliness.CLEAN:
        return Undone(Cleanliness.CLEAN, outcome.evidence, by_deadline)
    why = f"injector said {outcome.cleanliness}: {outcome.error}" if outcome else "injector left no last word"
    if outcome and ledger and outcome.undo_state.items() - state.items():
        # A ledger that cannot be written does not hold up the second agent, who is told all the same.
        with suppress(KubernetesError):
            ledger.update_undo(entry, fault.model_copy(update={"undo_state": state | outcome.undo_state}))
    state |= outcome.undo_state if outcome else {}
    within_s = _SECOND_AGENT_AFTER_SIGNAL_S if after_signal else _SECOND_AGENT_WITHIN_S
    return _second_agent(kubernetes, entry, fault, run_id, pods, state, why, within_s)


def _undo_state_in_log(kubernetes: Kubernetes, pod: str) -> dict[str, str]:
    """Return what an agent that was killed had printed for the undo in its place; its log goes with its pod."""
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


def _second_agent(
    kubernetes: Kubernetes,
    entry: Entry,
    fault: TakeOutFault,
    run_id: str,
    pods: PodFollower,
    state: dict[str, str],
    why: str,
    within_s: float,
) -> Undone:
    node, name = entry.node or "", f"{fault.pod}-undo"
    if kubernetes.node_or_none(node) is None:
        return Undone(Cleanliness.UNKNOWN, (why, f"node {node} is no longer there, and no second agent can run"))
    task = UndoTask(run_id=run_id, node=node, gpu=fault.gpu, fault=fault.fault, undo_state=state)
    manifest = agent_pod(
        name,
        task=task.model_dump_json(),
        role="undo",
        run_id=run_id,
        node=node,
        profile=kubernetes.profile,
        deadline=_SECOND_AGENT_DEADLINE,
        security=security_of(task),
    )
    # Another reaper's second agent may be at work already: its word is as good.
    uid: str | None = None
    try:
        uid = kubernetes.create_pod(manifest)
    except KubernetesError as error:
        if error.status != 409:
            raise

    def ended() -> bool:
        seen = pods.seen(name)
        return seen is not None and seen.ended and uid in (None, seen.uid)

    pods.wait(ended, within_s)
    pods.wait_gone(name, kubernetes.delete_pod(name), _GONE_WITHIN_S)
    outcome = termination_message(pods, name) if ended() else None
    if outcome is None:
        return Undone(Cleanliness.UNKNOWN, (why, "a second agent gave no answer"))
    return Undone(outcome.cleanliness, (why, *outcome.evidence))


def _restore(kubernetes: Kubernetes, node: str, restore: RestoreNode, known: Any | None) -> Undone:
    try:
        before, after = kubernetes.restore_node(node, restore.unwanted, restore.unschedulable, known)
    except KubernetesError as error:
        if error.status == 404:
            return _no_longer_there(node)
        raise
    lines = (
        f"read before: taints {_names(before.taints)}, unschedulable {before.unschedulable}",
        f"removed: {_names(taint for taint in before.taints if restore.unwanted(taint))}",
        f"read after: taints {_names(after.taints)}, unschedulable {after.unschedulable}",
    )
    return Undone(Cleanliness.CLEAN if restore.is_met_by(after) else Cleanliness.DIRTY, lines)


def _keep_out(kubernetes: Kubernetes, node: str, restore: RestoreNode, fault: Cleanliness) -> Undone:
    """A node whose fault may still be in keeps its quarantine, which is as open as the fault: dirty or unknown."""
    found = kubernetes.node_or_none(node)
    if found is None:
        return _no_longer_there(node)
    now = snapshot(found)
    read = f"read: taints {_names(now.taints)}, unschedulable {now.unschedulable}"
    if restore.is_met_by(now):
        return Undone(Cleanliness.CLEAN, ("nothing to remove", read))
    return Undone(fault, ("kept out of service: the fault is not provably out", read))


def _no_longer_there(node: str) -> Undone:
    return Undone(Cleanliness.CLEAN, (f"node {node} is no longer there",))


def _names(taints: Any) -> str:
    return ", ".join(map(str, taints)) or "none"
