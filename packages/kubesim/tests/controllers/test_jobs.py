from __future__ import annotations

from datetime import timedelta
from typing import Any

from kubesim.clock import rfc3339
from kubesim.controllers.conditions import holds
from kubesim.controllers.job_controller import pod_for
from kubesim.controllers.jobs import next_step
from kubesim.controllers.pods import JOB_TRACKING

from .builders import NOW, STAMP, leaving, pod

BACKOFF_S = 10.0


def job(status: Any = None, **spec: Any) -> Any:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main"}]}}
    return {
        "metadata": {"name": "train", "namespace": "default", "uid": "uid-train"},
        "spec": {"template": template, **spec},
        "status": status or {"startTime": STAMP},
    }


def tracked(name: str, phase: str = "Running", ended: str = STAMP) -> Any:
    made = pod(name, phase=phase, nodeName="n1")
    made["metadata"]["finalizers"] = [JOB_TRACKING]
    if phase in {"Failed", "Succeeded"}:
        made["status"]["containerStatuses"] = [{"state": {"terminated": {"finishedAt": ended}}}]
    return made


def untracked(made: Any) -> Any:
    return {**made, "metadata": {**made["metadata"], "finalizers": []}}


def test_creates_up_to_parallelism_and_never_beyond_completions() -> None:
    assert next_step(job(), [], BACKOFF_S, NOW).create == 1
    step = next_step(job(parallelism=4, completions=10), [tracked("a")], BACKOFF_S, NOW)
    assert (step.create, step.status["active"]) == (3, 1)
    nearly = job({"startTime": STAMP, "succeeded": 8}, parallelism=4, completions=10)
    assert next_step(nearly, [], BACKOFF_S, NOW).create == 2


def test_start_time_is_set_once() -> None:
    fresh = job({"conditions": []})
    assert next_step(fresh, [], BACKOFF_S, NOW).status["startTime"] == STAMP
    assert next_step(job(), [], BACKOFF_S, NOW + timedelta(hours=1)).status["startTime"] == STAMP


def test_success_is_counted_in_two_steps_and_then_completes() -> None:
    done = tracked("a", "Succeeded")
    first = next_step(job(), [done], BACKOFF_S, NOW)
    assert first.status["uncountedTerminatedPods"] == {"succeeded": ["uid-a"]}
    assert "succeeded" not in first.status
    assert first.release == [done]
    assert first.create == 0
    second = next_step(job(first.status), [untracked(done)], BACKOFF_S, NOW)
    assert second.status["succeeded"] == 1
    assert second.status["uncountedTerminatedPods"] == {}
    assert second.status["completionTime"] == STAMP
    assert holds({"status": second.status}, "Complete")
    third = next_step(job(second.status), [untracked(done)], BACKOFF_S, NOW)
    assert third.status == second.status, "a finished Job rests"


def test_failed_pod_is_replaced_after_the_back_off_which_doubles() -> None:
    failed = [untracked(tracked("a", "Failed"))]
    known = job({"startTime": STAMP, "failed": 1})
    waiting = next_step(known, failed, BACKOFF_S, NOW)
    assert (waiting.create, waiting.requeue_at) == (0, NOW + timedelta(seconds=10))
    assert next_step(known, failed, BACKOFF_S, NOW + timedelta(seconds=10)).create == 1
    failed.append(untracked(tracked("b", "Failed")))
    again = next_step(job({"startTime": STAMP, "failed": 2}), failed, BACKOFF_S, NOW)
    assert again.requeue_at == NOW + timedelta(seconds=20)


def test_deleted_pod_counts_as_failed_and_is_replaced() -> None:
    gone = leaving(tracked("a"))
    first = next_step(job(), [gone], BACKOFF_S, NOW)
    assert first.status["uncountedTerminatedPods"] == {"failed": ["uid-a"]}
    second = next_step(job(first.status), [untracked(gone)], BACKOFF_S, NOW)
    assert (second.status["failed"], second.create) == (1, 1)


def test_backoff_limit_fails_the_job_and_stops_its_pods() -> None:
    running = tracked("b")
    step = next_step(job({"startTime": STAMP, "failed": 3}, backoffLimit=2, parallelism=2), [running], BACKOFF_S, NOW)
    assert holds({"status": step.status}, "Failed")
    assert step.delete == [running]
    assert step.create == 0
    assert step.events == [("BackoffLimitExceeded", "Job has reached the specified backoff limit")]


def test_deadline() -> None:
    limited = job(activeDeadlineSeconds=60)
    assert next_step(limited, [tracked("a")], BACKOFF_S, NOW).requeue_at == NOW + timedelta(seconds=60)
    late = next_step(limited, [tracked("a")], BACKOFF_S, NOW + timedelta(seconds=60))
    assert holds({"status": late.status}, "Failed")
    assert late.status["conditions"][0]["reason"] == "DeadlineExceeded"


def test_ttl_after_finished() -> None:
    ended = {"type": "Complete", "status": "True", "lastTransitionTime": STAMP}
    finished = job({"conditions": [ended], "succeeded": 1}, ttlSecondsAfterFinished=30)
    assert next_step(finished, [], BACKOFF_S, NOW).requeue_at == NOW + timedelta(seconds=30)
    assert next_step(finished, [], BACKOFF_S, NOW + timedelta(seconds=30)).remove_job
    assert not next_step(job({"conditions": [ended]}), [], BACKOFF_S, NOW).remove_job


def test_suspend_gives_pods_up_without_counting_failures_and_resumes() -> None:
    running = tracked("a")
    paused = next_step(job(suspend=True), [running], BACKOFF_S, NOW)
    assert paused.delete == [running]
    assert holds({"status": paused.status}, "Suspended")
    gone = leaving(running)
    released = next_step(job(paused.status, suspend=True), [gone], BACKOFF_S, NOW)
    assert released.release == [gone]
    assert released.status["uncountedTerminatedPods"] == {}
    later = NOW + timedelta(minutes=1)
    resumed = next_step(job(released.status, suspend=False), [], BACKOFF_S, later)
    assert (resumed.create, resumed.status["startTime"]) == (1, rfc3339(later))


def test_scaling_down_gives_up_unbound_pods_first() -> None:
    bound, waiting = tracked("a"), tracked("b", "Pending")
    del waiting["spec"]["nodeName"]
    step = next_step(job(parallelism=1, completions=5), [bound, waiting], BACKOFF_S, NOW)
    assert step.delete == [waiting]


def test_work_queue_job_waits_for_the_rest() -> None:
    ended = job({"startTime": STAMP, "succeeded": 1}, parallelism=2)
    assert next_step(ended, [tracked("b")], BACKOFF_S, NOW).create == 0
    assert holds({"status": next_step(ended, [], BACKOFF_S, NOW).status}, "Complete")


def test_pod_carries_owner_labels_and_finalizer() -> None:
    made = pod_for(job())
    assert made["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "train"
    assert made["metadata"]["labels"]["controller-uid"] == "uid-train"
    assert made["metadata"]["ownerReferences"][0]["controller"] is True
    assert made["metadata"]["finalizers"] == [JOB_TRACKING]
