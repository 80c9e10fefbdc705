"""Step 4: is the node out of service, by whom, and does the quarantine keep work away?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from functools import partial

from gameday.checks import taints
from gameday.cluster.manifests import gpu_canary, gpu_job
from gameday.cluster.nodes import GPU_RESOURCE
from gameday.history.events import WorkloadSeen
from gameday.ledger.entries import DeleteJob, DeletePod, Entry
from gameday.observe.deadline import await_within
from gameday.observe.injected_fault import InjectedFault
from gameday.observe.node_states import note_nodes_during
from gameday.observe.signals import await_cordon, await_signals, signal_bounds
from gameday.run.run import Run
from gameday.run.steps import StepResult, step
from gameday.run.targets import ChosenTarget, pool_labels
from gameday.tasks import step_task
from gameday.tasks.canary import canary_during
from gameday.tasks.running_pods import note_running_pods
from gameday.tasks.topology_probe import check_misaligned_pod
from gameday.values.results import Step

# The scheduler decides about a new pod within this, on a cluster that schedules at all; one that lost its API server
# comes back to it after client-go's longest back-off, 30 s with jitter on top.
_SCHEDULED_WITHIN = timedelta(seconds=60)


@step_task(name="verify taint")
def verify_taint(run: Run, faults: Sequence[InjectedFault]) -> None:
    """Wait for the quarantine (none, for a negative control), then check workloads and signals."""
    expect = run.plan.expect
    bounds = [taint.within for taint in expect.taints] + [expect.stays_schedulable_for or timedelta()]
    bounds += [expect.cordoned.within] if expect.cordoned else []
    with step(run, Step.VERIFY_TAINT, max([*bounds, *signal_bounds(run)])) as result:
        nodes = {fault.node for fault in faults}
        for fault in faults:
            canary_during(run, result, fault.target)
            check_misaligned_pod(run, result, fault.target)
            quarantined = _await_quarantine(run, result, fault)
            if expect.stays_schedulable_for:
                _check_stays_schedulable(run, result, expect.stays_schedulable_for, fault)
            elif expect.expects_quarantine and quarantined:
                canary, job = _intend_workloads(run, fault.target)
                _check_canary_is_kept_off(run, result, fault.target, canary)
                _check_resubmitted_job(run, result, job, nodes)
            note_running_pods(run, fault)
            await_signals(run, result, fault)
        note_nodes_during(run, nodes)


def _await_quarantine(run: Run, result: StepResult, fault: InjectedFault) -> bool:
    """Wait for every expected taint and for the cordon; return True where all came."""
    came = True
    for expected in run.plan.expect.taints:
        what = f"taint {expected.key}={expected.value}:{expected.effect} on {fault.node}"
        sightings = partial(taints.sightings, expected, node=fault.node)
        if not await_within(run, result, what, expected.within, fault, sightings):
            came = False
    return await_cordon(run, result, fault) and came


def _check_stays_schedulable(run: Run, result: StepResult, quiet: timedelta, fault: InjectedFault) -> None:
    before, node = fault.target.before, fault.node

    def quarantined() -> str | None:
        now = run.nodes.now(node)
        gained = [str(taint) for taint in now.taints if taint not in before.taints] if now else []
        return ", ".join(gained) or ("cordoned" if now and now.unschedulable else None)

    what = f"{node} to stay schedulable"
    found = run.wait(what, fault.time_left(quiet), quarantined)
    if found:
        result.mark_broken(f"{node} was quarantined by a fault that should not: {found}")


def _intend_workloads(run: Run, target: ChosenTarget) -> tuple[Entry, Entry]:
    """Write the intents of the canary and of the resubmitted job, in one write of the ledger."""
    index, duration = target.index, run.plan.guardrails.max_duration
    canary, job = run.record.object_name("canary", index), run.record.object_name("resubmit", index)
    act, undo = f"create pod {canary}", DeletePod(pod=canary)
    return (
        run.intend(f"canary-{index}", act, undo, target.node, duration, defer_write=True),
        run.intend(f"resubmit-{index}", f"create job {job}", DeleteJob(job=job), None, duration),
    )


def _check_canary_is_kept_off(run: Run, result: StepResult, target: ChosenTarget, entry: Entry) -> None:
    assert isinstance(entry.undo, DeletePod)
    name, kept_for = entry.undo.pod, run.plan.expect.workloads.canary_kept_off_for
    run.kubernetes.create_pod(gpu_canary(name, run_id=run.id, node=target.node, template=run.gpu_pod_template))

    def placed() -> str | None:
        pod = run.pods.seen(name)
        return pod.node if pod else None

    def judged() -> str | None:
        pod = run.pods.seen(name)
        return pod.node or pod.unschedulable if pod else None

    run.wait(f"the scheduler's decision on canary {name}", _SCHEDULED_WITHIN, judged)
    landed = run.wait(f"canary {name} to stay off {target.node}", kept_for, placed)
    pod = run.pods.seen(name)
    message = (pod.unschedulable if pod else None) or ""
    # The scheduler's own words for a taint that is not tolerated, and for a cordon.
    kept_off = "taint" in message or (run.plan.expect.cordoned is not None and "unschedulable" in message)
    ok: bool | None = False if landed else kept_off or None
    detail = f"landed on {landed}" if landed else message or "the scheduler said nothing about it"
    run.note(
        WorkloadSeen(
            purpose="canary",
            pod=name,
            node=landed,
            phase=pod.phase if pod else "",
            wanted=f"kept off {target.node}",
            ok=ok,
            detail=detail,
        )
    )
    if landed:
        result.mark_broken(f"a new GPU pod was scheduled to the tainted node {landed}")
    elif ok is None:
        result.mark_unknown(f"the canary was kept off, but not provably by the quarantine: {detail}")
    run.undo(entry)


def _check_resubmitted_job(run: Run, result: StepResult, entry: Entry, broken_nodes: Collection[str]) -> None:
    assert isinstance(entry.undo, DeleteJob)
    name, within = entry.undo.job, run.plan.expect.workloads.resubmitted_within
    labels = pool_labels(run)
    run.kubernetes.create_job(gpu_job(name, run_id=run.id, selector=labels, template=run.gpu_pod_template))

    def running() -> str | None:
        pods = [pod for pod in run.pods.present() if pod.owner_job == name and pod.phase == "Running"]
        return pods[0].node if pods else None

    node = run.wait(f"resubmitted job {name} to run", within, running)
    ok: bool | None
    if node:
        ok, detail = node not in broken_nodes, f"runs on {node}"
    else:
        ok, why = _why_not(run, name, labels, broken_nodes)
        detail = f"did not run within {within.total_seconds():g} s: {why}"
    run.note(
        WorkloadSeen(
            purpose="resubmitted",
            pod=name,
            node=node,
            phase="Running" if node else "Pending",
            wanted="runs on a healthy node",
            ok=ok,
            detail=detail,
        )
    )
    if ok is None:
        result.mark_unknown(f"no healthy node had room for the resubmitted job, which {detail}")
    elif not ok:
        result.mark_broken(f"the resubmitted job {detail}")
    run.undo(entry)


def _why_not(run: Run, job: str, pool: dict[str, str], broken_nodes: Collection[str]) -> tuple[bool | None, str]:
    """Return False and why the job ran nowhere; None where no other node could have taken it."""
    messages = [pod.why_not_running for pod in run.pods.present() if pod.owner_job == job and pod.why_not_running]
    why = messages[0] if messages else "no pod of it was seen"
    if f"Insufficient {GPU_RESOURCE}" in why:
        return None, why
    if not {node.name for node in run.kubernetes.candidates(pool)}.difference(broken_nodes):
        labels = ",".join(f"{key}={value}" for key, value in pool.items())
        return None, f"no other node carries {labels} ({why})"
    return False, why
