"""Step 4 checks that a quarantine keeps new work away: a canary pod stays off, and a resubmitted job runs elsewhere."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from gameday.cluster.manifests import gpu_canary, gpu_job
from gameday.cluster.nodes import GPU_RESOURCE
from gameday.history.events import WorkloadSeen
from gameday.ledger.entries import DeleteJob, DeletePod, Entry
from gameday.run.run import Run
from gameday.run.steps import StepResult
from gameday.run.targets import ChosenTarget, pool_labels

# Time in which a working scheduler decides about a new pod; one that lost its API server comes back to it after
# client-go's longest back-off, 30 s with jitter on top.
_SCHEDULING_TIMEOUT = timedelta(seconds=60)


def check_new_work_is_kept_off(run: Run, result: StepResult, target: ChosenTarget, broken: Collection[str]) -> None:
    """Send a canary pod to a quarantined target and a job to its pool, and check where they run.

    Args:
        run: The run.
        result: Receives the findings.
        target: The quarantined target.
        broken: All of the run's targets; the job must run on another node.
    """
    within = run.plan.expect.workloads.resubmitted_within
    canary = _intend_canary(run, target, with_job=within is not None)
    job = _intend_job(run, target) if within else None
    _check_canary_is_kept_off(run, result, target, canary)
    if job and within:
        _check_resubmitted_job(run, result, job, within, broken)


def _intend_canary(run: Run, target: ChosenTarget, *, with_job: bool) -> Entry:
    """Write the intent of the canary, `with_job` in one write of the ledger with the job's."""
    canary, duration = run.record.object_name("canary", target.index), run.plan.guardrails.max_duration
    act, undo = f"create pod {canary}", DeletePod(pod=canary)
    return run.intend(f"canary-{target.index}", act, undo, target.node, duration, defer_write=with_job)


def _intend_job(run: Run, target: ChosenTarget) -> Entry:
    job, duration = run.record.object_name("resubmit", target.index), run.plan.guardrails.max_duration
    return run.intend(f"resubmit-{target.index}", f"create job {job}", DeleteJob(job=job), None, duration)


def _check_canary_is_kept_off(run: Run, result: StepResult, target: ChosenTarget, entry: Entry) -> None:
    assert isinstance(entry.undo, DeletePod)
    name, kept_for = entry.undo.pod, run.plan.expect.workloads.canary_kept_off_for
    run.kubernetes.create_pod(gpu_canary(name, run_id=run.id, node=target.node, template=run.gpu_pod_template))

    def placed_on() -> str | None:
        pod = run.pods.seen(name)
        return pod.node if pod else None

    def decided() -> str | None:
        pod = run.pods.seen(name)
        return pod.node or pod.unschedulable if pod else None

    run.wait(f"the scheduler's decision on canary {name}", _SCHEDULING_TIMEOUT, decided)
    landed = run.wait(f"canary {name} to stay off {target.node}", kept_for, placed_on)
    pod = run.pods.seen(name)
    message = (pod.unschedulable if pod else None) or ""
    # The scheduler's own messages name a taint that is not tolerated, and a cordon.
    kept_off = "taint" in message or (run.plan.expect.cordoned is not None and "unschedulable" in message)
    ok: bool | None = False if landed else kept_off or None
    detail = f"landed on {landed}" if landed else message or "the scheduler gave no reason"
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


def _check_resubmitted_job(
    run: Run, result: StepResult, entry: Entry, timeout: timedelta, broken: Collection[str]
) -> None:
    assert isinstance(entry.undo, DeleteJob)
    name = entry.undo.job
    labels = pool_labels(run)
    run.kubernetes.create_job(gpu_job(name, run_id=run.id, selector=labels, template=run.gpu_pod_template))

    def running() -> str | None:
        pods = [pod for pod in run.pods.present() if pod.owner_job == name and pod.phase == "Running"]
        return pods[0].node if pods else None

    node = run.wait(f"resubmitted job {name} to run", timeout, running)
    ok: bool | None
    if node:
        ok, detail = node not in broken, f"runs on {node}"
    else:
        ok, why = _why_not_running(run, name, labels, broken)
        detail = f"did not run within {timeout.total_seconds():g} s: {why}"
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


def _why_not_running(run: Run, job: str, pool: dict[str, str], broken: Collection[str]) -> tuple[bool | None, str]:
    """Return False and why the job ran nowhere; None if no other node could have taken it."""
    messages = [pod.why_not_running for pod in run.pods.present() if pod.owner_job == job and pod.why_not_running]
    why = messages[0] if messages else "no pod of it was seen"
    if f"Insufficient {GPU_RESOURCE}" in why:
        return None, why
    if not {node.name for node in run.kubernetes.candidates(pool)}.difference(broken):
        labels = ",".join(f"{key}={value}" for key, value in pool.items())
        return None, f"no other node carries {labels} ({why})"
    return False, why
