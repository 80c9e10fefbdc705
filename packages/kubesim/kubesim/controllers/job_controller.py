"""Runs Jobs: watches them and their pods and carries out what `jobs.next_step` decides."""

from __future__ import annotations

import asyncio
import copy

from kubesim.client import ApiClient, Object, Reflector, key_of
from kubesim.clock import now_utc
from kubesim.controllers.events import NORMAL, WARNING, EventRecorder
from kubesim.controllers.jobs import JobStep, is_tracked, next_step
from kubesim.controllers.pods import JOB_TRACKING, PodIndex, is_terminating, owner_of, pod_path
from kubesim.controllers.workqueue import WorkQueue
from kubesim.controllers.writes import Expectations, drop_finalizer, for_each

FAILURES = {"BackoffLimitExceeded", "DeadlineExceeded"}
# Pod changes of one Job come in bursts; upstream waits a whole second (syncJobBatchPeriod).
POD_CHANGE_PAUSE_S = 0.05


class JobController:
    """Reconciles Jobs, by the key `namespace/name/uid`."""

    def __init__(
        self,
        api: ApiClient,
        events: EventRecorder,
        jobs: Reflector,
        pods: Reflector,
        index: PodIndex,
        first_backoff_s: float,
    ) -> None:
        self._api = api
        self._events = events
        self._jobs = jobs
        self._pods = pods
        self._index = index
        self._first_backoff_s = first_backoff_s
        self._expected = Expectations()
        self._queue = WorkQueue("job", self._reconcile)
        self._orphans = WorkQueue("job-orphan", self._free_orphan, workers=1)
        jobs.on(self._job_seen, lambda _, job: self._job_seen(job), self._job_seen)
        pods.on(self._pod_seen, lambda _, pod: self._pod_seen(pod), self._pod_seen)

    async def run(self) -> None:
        await asyncio.gather(self._jobs.synced.wait(), self._pods.synced.wait())
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run())
            group.create_task(self._orphans.run())

    def _job_seen(self, job: Object) -> None:
        self._queue.add(f"{key_of(job)}/{job['metadata']['uid']}")

    def _pod_seen(self, pod: Object) -> None:
        owner = owner_of(pod)
        if owner is not None and owner["kind"] == "Job":
            self._expected.arrived(owner["uid"], pod["metadata"]["uid"])
            key = f"{pod['metadata']['namespace']}/{owner['name']}/{owner['uid']}"
            self._queue.add_after(key, POD_CHANGE_PAUSE_S)
        elif owner is None and is_tracked(pod):
            self._orphans.add(key_of(pod))

    async def _reconcile(self, key: str) -> None:
        name, uid = key.rsplit("/", 1)
        job = self._jobs.store.get(name)
        pods = self._index.owned_by(uid)
        if job is None or job["metadata"]["uid"] != uid:
            await for_each([pod for pod in pods if is_tracked(pod)], self._release)
            return
        if is_terminating(job):
            await for_each([pod for pod in pods if is_tracked(pod) and is_terminating(pod)], self._release)
            return
        if wait_s := self._expected.settle(uid, {pod["metadata"]["uid"] for pod in pods}):
            self._queue.add_after(key, wait_s)
            return
        step = next_step(job, pods, self._first_backoff_s, now_utc())
        if step.requeue_at is not None:
            self._queue.add_at(key, step.requeue_at)
        await self._carry_out(job, step)

    async def _free_orphan(self, key: str) -> None:
        """Free the pods of a Job that was deleted with --cascade=orphan: they will never be counted."""
        pod = self._pods.store.get(key)
        if pod is not None and is_tracked(pod) and owner_of(pod) is None:
            await self._release(pod)

    async def _carry_out(self, job: Object, step: JobStep) -> None:
        path = job_path(job)
        if step.remove_job:
            await self._api.delete(path, {"propagationPolicy": "Background"})
            return
        if step.status != job.get("status"):
            await self._api.put(f"{path}/status", {**job, "status": step.status})
        for reason, message in step.events:
            self._record(job, reason, message, WARNING if reason in FAILURES else NORMAL)
        await for_each(step.delete, lambda pod: self._delete(job, pod))
        await for_each([pod_for(job)] * step.create, lambda pod: self._create(job, pod))
        await for_each(step.release, self._release)

    async def _create(self, job: Object, pod: Object) -> None:
        created = await self._api.post(f"/api/v1/namespaces/{job['metadata']['namespace']}/pods", pod)
        if key_of(created) not in self._pods.store:
            self._expected.expect(job["metadata"]["uid"], created["metadata"]["uid"])
        self._record(job, "SuccessfulCreate", f"Created pod: {created['metadata']['name']}")

    async def _delete(self, job: Object, pod: Object) -> None:
        await self._api.delete(pod_path(pod))
        self._record(job, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")

    async def _release(self, pod: Object) -> None:
        await drop_finalizer(self._api, pod_path(pod), pod, JOB_TRACKING)

    def _record(self, job: Object, reason: str, message: str, level: str = NORMAL) -> None:
        self._events.record(job, "Job", "batch/v1", reason, message, level)


def job_path(job: Object) -> str:
    meta = job["metadata"]
    return f"/apis/batch/v1/namespaces/{meta['namespace']}/jobs/{meta['name']}"


def pod_for(job: Object) -> Object:
    """Return a new pod of the Job: its template with kube-controller-manager's labels, finalizer and ownerReference."""
    meta, template = job["metadata"], job["spec"]["template"]
    given = template.get("metadata") or {}
    labels = {
        **(given.get("labels") or {}),
        "batch.kubernetes.io/controller-uid": meta["uid"],
        "batch.kubernetes.io/job-name": meta["name"],
        "controller-uid": meta["uid"],
        "job-name": meta["name"],
    }
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{meta['name']}-",
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": dict(given.get("annotations") or {}),
            "finalizers": [JOB_TRACKING],
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": copy.deepcopy(template["spec"]),
    }
