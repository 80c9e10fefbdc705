"""Step 4: is the node out of service, by whom, and does that do what it is for?"""

from __future__ import annotations

from datetime import timedelta

from gameday.cluster.manifests import gpu_canary, gpu_job
from gameday.history.events import Step, Target, WorkloadSeen
from gameday.ledger.entries import DeleteJob, DeletePod, Entry
from gameday.observe.signals import await_cordon, await_signals, signal_bounds
from gameday.plan.models import ExpectedTaint
from gameday.run.context import Run
from gameday.run.steps import StepResult, step
from gameday.run.targets import opt_in
from tasks import step_task
from tasks.canary import canary_during
from tasks.misaligned import misaligned_pod_is_rejected

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
            _running_pods(run, target)
            await_signals(run, result, target.node)
        run.see_nodes_during()


def _await_taint(run: Run, result: StepResult, expected: ExpectedTaint, node: str) -> bool:
    def there() -> bool | None:
        now = run.node_now(node)
        wanted = (expected.key, expected.value, str(expected.effect))
        return True if now and any((t.key, t.value, t.effect) == wanted for t in now.taints) else None

    taint = f"{expected.key}={expected.value}:{expected.effect}"
    left = run.left_of(expected.within, node)
    if run.wait(f"taint {taint} on {node}", left, there):
        return True
    result.broken(f"{taint} was not on {node} within {expected.within.total_seconds():g} s")
    return False


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
    run.kubernetes.create_pod(gpu_canary(name, run_id=run.id, node=target.node))

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
    run.kubernetes.create_job(gpu_job(name, run_id=run.id, selector=opt_in(run)))

    def running() -> str | None:
        pods = [pod for pod in run.pods.present() if pod.owner_job == name and pod.phase == "Running"]
        return pods[0].node if pods else None

    node = run.wait(f"resubmitted job {name} to run", within, running)
    elsewhere = node is not None and node not in {t.node for t in run.targets}
    detail = f"runs on {node}" if node else f"did not run within {within.total_seconds():g} s: {_why_not(run, name)}"
    run.note(
        WorkloadSeen(
            purpose="resubmitted",
            pod=name,
            node=node,
            phase="Running" if node else "Pending",
            wanted="runs on a healthy node",
            ok=elsewhere,
            detail=detail,
        )
    )
    if not elsewhere:
        result.broken(f"the resubmitted job {detail}")
    run.undo(entry)


def _why_not(run: Run, job: str) -> str:
    messages = [pod.unschedulable for pod in run.pods.present() if pod.owner_job == job and pod.unschedulable]
    return messages[0] if messages else "no pod of it was seen"


def _running_pods(run: Run, target: Target) -> None:
    """Which of the GPU pods that ran there when the fault went in still do; the check judges it."""
    still = {pod.uid for pod in run.gpu_pods_on(target.node)}
    wanted = run.plan.expect.workloads.running_pods
    for pod in run.ran_before.get(target.node, ()):
        kept = pod.uid in still
        ok = wanted == "any" or kept == (wanted == "kept")
        run.note(
            WorkloadSeen(
                purpose="running",
                pod=f"{pod.namespace}/{pod.name}",
                node=target.node if kept else None,
                phase=pod.phase if kept else "gone",
                wanted=wanted,
                ok=ok,
                detail="kept" if kept else "evicted or gone",
            )
        )
