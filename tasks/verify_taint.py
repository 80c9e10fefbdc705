"""Step 4: is the node out of service, by whom, and does that do what it is for?"""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from gameday.checks import taints
from gameday.cluster.manifests import gpu_canary, gpu_job
from gameday.cluster.nodes import GPU_RESOURCE
from gameday.history.events import WorkloadSeen
from gameday.ledger.entries import DeleteJob, DeletePod, Entry
from gameday.observe.deadline import await_in_time
from gameday.observe.signals import await_cordon, await_signals, signal_bounds
from gameday.plan.models import ExpectedTaint
from gameday.run.run import Run
from gameday.run.steps import StepResult, step
from gameday.run.targets import healthy_places
from gameday.tasks import step_task
from gameday.tasks.canary import canary_during
from gameday.tasks.running_pods import running_pods
from gameday.tasks.topology_probe import misaligned_pod_is_rejected
from gameday.values.nodes import Target
from gameday.values.results import Step

# The scheduler decides about a new pod within this, on a cluster that schedules at all; one that lost its API server
# comes back to it after client-go's longest back-off, 30 s with jitter on top.
_SCHEDULED_WITHIN = timedelta(seconds=60)


@step_task(name="verify taint")
def verify_taint(run: Run) -> None:
    """Expected taints and cordon within their bounds (or none at all, for a negative control), then the workloads,
    then what else a detector was to write about the node."""
    expect = run.plan.expect
    bounds = [taint.within for taint in expect.taints] + [expect.stays_schedulable_for or timedelta()]
    bounds += [expect.cordoned.within] if expect.cordoned else []
    with step(run, Step.VERIFY_TAINT, max([*bounds, *signal_bounds(run)])) as result:
        for number, target in enumerate(run.targets):
            canary_during(run, result, target, number)
            misaligned_pod_is_rejected(run, result, target, number)
            tainted = all([_await_taint(run, result, expected, target.node) for expected in expect.taints])
            tainted &= await_cordon(run, result, target.node)
            if expect.stays_schedulable_for:
                _stays_schedulable(run, result, expect.stays_schedulable_for, target.node)
            elif expect.quarantine and tainted:
                canary, job = _intend_workloads(run, target, number)
                _canary_is_kept_off(run, result, target, canary)
                _resubmitted_job_lands_elsewhere(run, result, job)
            running_pods(run, target)
            await_signals(run, result, target.node)
        run.see_nodes_during()


def _await_taint(run: Run, result: StepResult, expected: ExpectedTaint, node: str) -> bool:
    what = f"taint {expected.key}={expected.value}:{expected.effect} on {node}"
    return await_in_time(run, result, what, expected.within, node, partial(taints.sightings, expected, node=node))


def _stays_schedulable(run: Run, result: StepResult, quiet: timedelta, node: str) -> None:
    before = run.before[node]

    def quarantined() -> str | None:
        now = run.node_now(node)
        gained = [str(taint) for taint in now.taints if taint not in before.taints] if now else []
        return ", ".join(gained) or ("cordoned" if now and now.unschedulable else None)

    what = f"{node} to stay schedulable"
    found = run.wait(what, run.left_of(quiet, node), quarantined)
    if found:
        result.broken(f"{node} was quarantined by a fault that should not: {found}")


def _intend_workloads(run: Run, target: Target, number: int) -> tuple[Entry, Entry]:
    """Both intents in one write of the ledger."""
    canary, job, lasts = run.name("canary", number), run.name("resubmit", number), run.plan.guardrails.max_duration
    return (
        run.intend(
            f"canary-{number}", f"create pod {canary}", DeletePod(pod=canary), target.node, lasts, with_next=True
        ),
        run.intend(f"resubmit-{number}", f"create job {job}", DeleteJob(job=job), None, lasts),
    )


def _canary_is_kept_off(run: Run, result: StepResult, target: Target, entry: Entry) -> None:
    assert isinstance(entry.undo, DeletePod)
    name, kept_for = entry.undo.pod, run.plan.expect.workloads.canary_kept_off_for
    run.kubernetes.create_pod(gpu_canary(name, run_id=run.id, node=target.node, template=run.probe))

    def placed() -> str | None:
        pod = run.pods.seen(name)
        return pod.node if pod else None

    def judged() -> str | None:
        pod = run.pods.seen(name)
        return pod.node or pod.unschedulable if pod else None

    run.wait(f"the scheduler's word on canary {name}", _SCHEDULED_WITHIN, judged)
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
        result.broken(f"a new GPU pod was scheduled to the tainted node {landed}")
    elif ok is None:
        result.unknown(f"the canary was kept off, but not provably by the quarantine: {detail}")
    run.undo(entry)


def _resubmitted_job_lands_elsewhere(run: Run, result: StepResult, entry: Entry) -> None:
    assert isinstance(entry.undo, DeleteJob)
    name, within = entry.undo.job, run.plan.expect.workloads.resubmitted_within
    places = healthy_places(run)
    run.kubernetes.create_job(gpu_job(name, run_id=run.id, selector=places, template=run.probe))

    def running() -> str | None:
        pods = [pod for pod in run.pods.present() if pod.owner_job == name and pod.phase == "Running"]
        return pods[0].node if pods else None

    node = run.wait(f"resubmitted job {name} to run", within, running)
    targets = {target.node for target in run.targets}
    ok: bool | None
    if node:
        ok, detail = node not in targets, f"runs on {node}"
    else:
        ok, why = _why_not(run, name, places, targets)
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
        result.unknown(f"no healthy node had room for the resubmitted job, which {detail}")
    elif not ok:
        result.broken(f"the resubmitted job {detail}")
    run.undo(entry)


def _why_not(run: Run, job: str, places: dict[str, str], targets: set[str]) -> tuple[bool | None, str]:
    """False and why it ran nowhere; None in place of False where there was no other node that could have taken it."""
    messages = [pod.why_not_running for pod in run.pods.present() if pod.owner_job == job and pod.why_not_running]
    why = messages[0] if messages else "no pod of it was seen"
    if f"Insufficient {GPU_RESOURCE}" in why:
        return None, why
    if not {node.name for node in run.kubernetes.candidates(places)} - targets:
        labels = ",".join(f"{key}={value}" for key, value in places.items())
        return None, f"no other node carries {labels} ({why})"
    return False, why
