"""The Job controller's decisions, as pure functions.

Pods carry the job-tracking finalizer until they are counted, so that a pod deleted at the wrong moment is never
counted twice or not at all: a finished pod's uid first enters status.uncountedTerminatedPods, then its finalizer goes,
then the uid turns into a number. This is the bookkeeping of kube-controller-manager since Kubernetes 1.26.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from kubesim.client import Object
from kubesim.clock import parse_time_if_any, rfc3339
from kubesim.controllers.conditions import condition, holds, with_condition
from kubesim.controllers.pods import JOB_TRACKING, is_terminal, is_terminating

DEFAULT_BACKOFF_LIMIT = 6
MAX_FAILURE_BACKOFF_S = 600.0  # MaxJobPodFailureBackOff


@dataclass(frozen=True)
class JobStep:
    """A reconcile's result: the status to store, then the pods to change, and when to look again (`requeue_at`)."""

    status: Object
    create: int = 0
    delete: list[Object] = field(default_factory=list)
    release: list[Object] = field(default_factory=list)
    requeue_at: datetime | None = None
    events: list[tuple[str, str]] = field(default_factory=list)
    remove_job: bool = False


@dataclass(frozen=True)
class Tally:
    """The job's pods, sorted by their meaning for it."""

    active: list[Object]
    leaving: list[Object]
    succeeded: int
    failed: int
    uncounted: dict[str, list[str]]
    release: list[Object]


def is_finished(job: Object) -> bool:
    return holds(job, "Complete") or holds(job, "Failed")


def is_tracked(pod: Object) -> bool:
    return JOB_TRACKING in (pod["metadata"].get("finalizers") or ())


def has_failed(pod: Object, *, suspended: bool) -> bool:
    """Return True if a pod failed or was deleted before it ended; a deletion by a suspension is no failure."""
    return _phase(pod) == "Failed" or (is_terminating(pod) and _phase(pod) != "Succeeded" and not suspended)


def tally(job: Object, pods: list[Object]) -> Tally:
    """Count the pods: ended ones through the uncounted list, the others by state."""
    status = job.get("status") or {}
    before = status.get("uncountedTerminatedPods") or {}
    suspended = bool(job["spec"].get("suspend"))
    tracked = {pod["metadata"]["uid"]: pod for pod in pods if is_tracked(pod)}
    counts: dict[str, int] = {}
    uncounted: dict[str, list[str]] = {}
    for outcome in ("succeeded", "failed"):
        listed_before = before.get(outcome) or []
        uncounted[outcome] = [uid for uid in listed_before if uid in tracked]
        counts[outcome] = int(status.get(outcome) or 0) + len(listed_before) - len(uncounted[outcome])
    listed = {uid for uids in uncounted.values() for uid in uids}
    for uid, pod in tracked.items():
        if uid in listed:
            continue
        if _phase(pod) == "Succeeded":
            uncounted["succeeded"].append(uid)
        elif has_failed(pod, suspended=suspended):
            uncounted["failed"].append(uid)
    ended = {uid for uids in uncounted.values() for uid in uids}
    unjudged = [p for uid, p in tracked.items() if suspended and is_terminating(p) and uid not in ended]
    living = [pod for pod in pods if not is_terminal(pod)]
    return Tally(
        active=[pod for pod in living if not is_terminating(pod)],
        leaving=[pod for pod in living if is_terminating(pod)],
        succeeded=counts["succeeded"] + len(uncounted["succeeded"]),
        failed=counts["failed"] + len(uncounted["failed"]),
        uncounted={outcome: uids for outcome, uids in uncounted.items() if uids},
        release=[tracked[uid] for uid in ended] + unjudged,
    )


def next_step(job: Object, pods: list[Object], first_backoff_s: float, now: datetime) -> JobStep:
    """Decide everything about one Job from its pods.

    `first_backoff_s`: the pause before a failed pod is replaced, doubling with every further failure in a row.
    """
    counted = tally(job, pods)
    if is_finished(job):
        return _after_the_end(job, counted, now)
    spec = job["spec"]
    status = _status(job, counted)
    if not status.get("startTime") and not spec.get("suspend"):
        status["startTime"] = rfc3339(now)
    step = JobStep(status=status, release=counted.release)
    if counted.uncounted:  # numbers first: the counts of a finished Job must not change any more
        return step
    if failure := _failure(job, counted, pods, status, now):
        return _failed(step, job, counted, failure, now)
    if _is_complete(spec, counted):
        return _completed(step, job, counted, now)
    if spec.get("suspend"):
        return _suspended(step, job, counted, now)
    return _running(step, job, counted, retry_at(pods, first_backoff_s), now)


def _status(job: Object, counted: Tally) -> Object:
    """Return the status by the tally alone; uncounted pods are not in succeeded and failed yet."""
    uncounted = counted.uncounted
    status = {
        **(job.get("status") or {}),
        "active": len(counted.active),
        "terminating": len(counted.leaving),
        "ready": sum(1 for pod in counted.active if holds(pod, "Ready")),
        "succeeded": counted.succeeded - len(uncounted.get("succeeded", ())),
        "failed": counted.failed - len(uncounted.get("failed", ())),
        "uncountedTerminatedPods": uncounted,
    }
    for name in ("active", "succeeded", "failed"):  # omitempty in the API
        if not status[name]:
            del status[name]
    return status


def _failure(job: Object, counted: Tally, pods: list[Object], status: Object, now: datetime) -> tuple[str, str] | None:
    spec = job["spec"]
    limit = int(spec.get("backoffLimit", DEFAULT_BACKOFF_LIMIT))
    restarts = _restarts(pods) if spec["template"]["spec"].get("restartPolicy") == "OnFailure" else 0
    if counted.failed > limit or (restarts and restarts >= limit):
        return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    if (end := _deadline(job, status)) is not None and now >= end:
        return "DeadlineExceeded", "Job was active longer than specified deadline"
    return None


def _restarts(pods: list[Object]) -> int:
    return sum(
        int(container.get("restartCount") or 0)
        for pod in pods
        for container in (pod.get("status") or {}).get("containerStatuses") or ()
    )


def _deadline(job: Object, status: Object) -> datetime | None:
    seconds = job["spec"].get("activeDeadlineSeconds")
    start = parse_time_if_any(status.get("startTime"))
    if seconds is None or start is None or job["spec"].get("suspend"):
        return None
    return start + timedelta(seconds=int(seconds))


def _is_complete(spec: Object, counted: Tally) -> bool:
    _, completions = _shape(spec)
    if completions is None:  # a work queue: done once one pod succeeded and the rest have ended
        return counted.succeeded > 0 and not counted.active and not counted.leaving
    return counted.succeeded >= completions


def _shape(spec: Object) -> tuple[int, int | None]:
    """Return parallelism and completions, by default 1 and 1; with parallelism alone it is a work queue (None)."""
    parallelism, completions = spec.get("parallelism"), spec.get("completions")
    if parallelism is None and completions is None:
        return 1, 1
    return 1 if parallelism is None else int(parallelism), None if completions is None else int(completions)


def _failed(step: JobStep, job: Object, counted: Tally, failure: tuple[str, str], now: datetime) -> JobStep:
    reason, message = failure
    new_condition = {
        "type": "Failed",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastProbeTime": rfc3339(now),
    }
    status = {**step.status, "conditions": with_condition(job, new_condition, now)}
    return replace(step, status=status, delete=counted.active, events=[(reason, message)])


def _completed(step: JobStep, job: Object, counted: Tally, now: datetime) -> JobStep:
    new_condition = {
        "type": "Complete",
        "status": "True",
        "reason": "CompletionsReached",
        "lastProbeTime": rfc3339(now),
    }
    new_condition["message"] = "Reached expected number of succeeded pods"
    status = {**step.status, "conditions": with_condition(job, new_condition, now), "completionTime": rfc3339(now)}
    return replace(step, status=status, delete=counted.active, events=[("Completed", "Job completed")])


def _suspended(step: JobStep, job: Object, counted: Tally, now: datetime) -> JobStep:
    if holds(job, "Suspended"):
        return replace(step, delete=counted.active)
    new_condition = {"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended"}
    status = {**step.status, "conditions": with_condition(job, new_condition, now)}
    status.pop("startTime", None)
    return replace(step, status=status, delete=counted.active, events=[("Suspended", "Job suspended")])


def _running(step: JobStep, job: Object, counted: Tally, not_before: datetime | None, now: datetime) -> JobStep:
    if holds(job, "Suspended"):
        new_condition = {"type": "Suspended", "status": "False", "reason": "JobResumed", "message": "Job resumed"}
        status = {**step.status, "conditions": with_condition(job, new_condition, now), "startTime": rfc3339(now)}
        step = replace(step, status=status, events=[("Resumed", "Job resumed")])
    deadline = _deadline(job, step.status)
    parallelism, completions = _shape(job["spec"])
    if completions is not None:
        wanted = min(parallelism, completions - counted.succeeded)
    else:
        wanted = len(counted.active) if counted.succeeded else parallelism
    missing = wanted - len(counted.active)
    if missing < 0:
        return replace(step, delete=_least_started(counted.active)[:-missing], requeue_at=deadline)
    if missing and not_before is not None and now < not_before:
        return replace(step, requeue_at=min(not_before, deadline) if deadline else not_before)
    return replace(step, create=missing, requeue_at=deadline)


def _least_started(pods: list[Object]) -> list[Object]:
    """Return the pods in the order in which they are given up: unassigned, then not ready, then youngest."""
    youngest_first = sorted(pods, key=lambda pod: pod["metadata"].get("creationTimestamp") or "", reverse=True)
    return sorted(youngest_first, key=lambda pod: (bool(pod["spec"].get("nodeName")), holds(pod, "Ready")))


def _after_the_end(job: Object, counted: Tally, now: datetime) -> JobStep:
    """Decide about a finished Job: count the last pods, then wait for ttlSecondsAfterFinished."""
    step = JobStep(status=_status(job, counted), delete=counted.active, release=counted.release)
    ttl = job["spec"].get("ttlSecondsAfterFinished")
    ended = condition(job, "Complete") if holds(job, "Complete") else condition(job, "Failed")
    when = parse_time_if_any((ended or {}).get("lastTransitionTime"))
    if ttl is None or when is None:
        return step
    expiry = when + timedelta(seconds=int(ttl))
    return replace(step, remove_job=True) if now >= expiry else replace(step, requeue_at=expiry)


def retry_at(pods: list[Object], first_backoff_s: float) -> datetime | None:
    """Return the earliest time to replace a failed pod, with a back-off by the failures since the latest success."""
    ends = {phase: [t for p in pods if _phase(p) == phase and (t := _end(p))] for phase in ("Succeeded", "Failed")}
    success = max(ends["Succeeded"], default=None)
    in_row = [when for when in ends["Failed"] if success is None or when > success]
    if not in_row:
        return None
    pause_s = min(first_backoff_s * 2.0 ** (len(in_row) - 1), MAX_FAILURE_BACKOFF_S)
    return max(in_row) + timedelta(seconds=pause_s)


def _phase(pod: Object) -> str | None:
    phase: str | None = (pod.get("status") or {}).get("phase")
    return phase


def _end(pod: Object) -> datetime | None:
    """Return the time at which the last of a pod's containers ended."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    ends = [parse_time_if_any(((s.get("state") or {}).get("terminated") or {}).get("finishedAt")) for s in statuses]
    return max((when for when in ends if when), default=None)
