"""The taint's purpose: no new GPU work lands there, resubmitted work runs elsewhere, running work fares as planned.

If the plan sends a pod that no NUMA node can serve, the kubelet must reject it. After QA a GPU pod must run on the node
again.
"""

from __future__ import annotations

from typing import Literal

from gameday.checks.facts import (
    at_most,
    breaks_gpu_nodes,
    first_few,
    in_place_of,
    judge_absence,
    seconds_text,
    target_nodes,
    worst_status,
)
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import QaLeftOut, Record, WorkloadSeen
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.values.results import Step

ORDER = 60

Purpose = Literal["canary", "resubmitted", "running", "return", "misaligned"]
Seen = tuple[Record, WorkloadSeen]


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    wanted = plan.expect.workloads
    verdicts = []
    if plan.expect.expects_quarantine and not plan.recover.is_hands_off:
        phrase = "A GPU pod that asks for the quarantined node stays unscheduled"
        kept_off_for = f"for {seconds_text(wanted.canary_kept_off_for.total_seconds())}"
        verdicts.append(_judge(history, "canary", phrase, kept_off_for))
        if within := wanted.resubmitted_within:
            phrase = "A resubmitted GPU job runs on a healthy node"
            verdicts.append(_judge(history, "resubmitted", phrase, at_most(within)))
    if wanted.running_pods != "any":
        phrase = f"GPU pods that ran on the node are {wanted.running_pods}"
        verdicts.append(_judge(history, "running", phrase, wanted.running_pods))
    if misaligned := plan.expect.topology_manager_rejects:
        phrase = f"The kubelet rejects a pod of {misaligned.size}, which no NUMA node has alone"
        verdicts.append(_judge(history, "misaligned", phrase, "TopologyAffinityError"))
    if plan.recover.gives_node_back and breaks_gpu_nodes(history):
        verdicts.append(_judge(history, "return", "After QA a GPU pod runs on the node again", "on the node"))
    return verdicts


def _judge(history: History, purpose: Purpose, expectation: str, bound: str) -> Verdict:
    seen, step = _newest_by_pod(history, purpose), Step.QA_NODE if purpose == "return" else Step.VERIFY_TAINT
    if seen:
        status = worst_status(_holds(history, event) for _, event in seen)
        why = first_few([_grievance(history, e) for _, e in seen if _holds(history, e) is not True])
        measured = "; ".join(dict.fromkeys(_where(event) for _, event in seen))
    elif purpose == "return" and (left_out := history.last(QaLeftOut)):
        status, why, measured = Status.UNKNOWN, f"left out: {left_out.why}", ""
    else:
        status, why = judge_absence(history, step, "the pod that would prove it")
        measured = ""
        if status is Status.BROKEN:
            # There was no pod to prove either answer: none ran on the node, or none was sent.
            status, why = Status.UNKNOWN, "no pod was watched that could prove it"
    return Verdict(
        check=f"workload-{purpose}",
        expectation=expectation,
        bound=bound,
        measured=measured,
        status=status,
        step=step,
        why=why,
        evidence=tuple(record.seq for record, _ in seen),
    )


def _newest_by_pod(history: History, purpose: Purpose) -> list[Seen]:
    newest = {e.pod: (r, e) for r, e in history.with_times(WorkloadSeen) if e.purpose == purpose}
    return list(newest.values())


def _contradiction(history: History, seen: WorkloadSeen) -> str:
    """Return how the pod's place contradicts the observer's result; empty if the two agree."""
    on_target = seen.node in {in_place_of(history, node) for node in target_nodes(history)}
    if seen.ok and seen.purpose in ("canary", "resubmitted") and seen.node and on_target:
        return f"{seen.pod} runs on the tainted node {seen.node}"
    if seen.ok and seen.purpose == "misaligned" and seen.phase != "Failed":
        return f"{seen.pod} is {seen.phase or 'in no phase'}, which no rejected pod is"
    if seen.ok and seen.purpose == "return" and not on_target:
        return f"{seen.pod} runs on {seen.node or 'no node'}, which is no target"
    return ""


def _holds(history: History, seen: WorkloadSeen) -> bool | None:
    return False if _contradiction(history, seen) else seen.ok


def _grievance(history: History, seen: WorkloadSeen) -> str:
    return _contradiction(history, seen) or f"{seen.pod}: {seen.detail}"


def _where(seen: WorkloadSeen) -> str:
    return f"{seen.phase} on {seen.node}" if seen.node else f"{seen.phase}, unscheduled"
