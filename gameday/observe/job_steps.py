"""Follow the steps that a job's pods print: those on the targets before the fault, and those that take their place."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from gameday.clock import Repetition
from gameday.cluster.kubernetes import absent_is_none
from gameday.errors import AdapterError
from gameday.expect.job import ExpectedJob
from gameday.history.events import JobStepSeen
from gameday.run.run import Run
from gameday.values.patterns import steps_in

_LOOK_EVERY_S = 2.0
_ENDS_WITHIN_S = 20.0
_MOST_PODS = 50
_MOST_CONTAINERS = 8
_LOG_BYTES = 256 << 10
"""The first bytes of a log, which must contain the first step."""
_TAIL_LINES = 200
_STAMP_CHARACTERS = 30


class JobWatch:
    """The job's containers of interest, looked at every 2 s beside the run until `stop`."""

    def __init__(self, run: Run, expected: ExpectedJob, nodes: Collection[str]) -> None:
        """Look once, in the caller's thread. Raises KubernetesError, or ValueError for a useless pattern."""
        self._run = run
        self._expected = expected
        self._repetition: Repetition | None = None
        self._was_trouble_said = False
        self._seen: dict[tuple[str, int], JobStepSeen] = {}
        pods = self._pods()
        # Other pods with the same labels do not concern this fault, unless they are created later.
        self._others = {pod.metadata.uid for pod in pods if pod.spec.node_name not in nodes}
        self._ended_before = {
            (pod.metadata.uid, status.restart_count)
            for pod in pods
            if (status := self._container_status(pod)) and not _is_alive(pod, status)
        }
        self._look(pods)

    @property
    def has_steps(self) -> bool:
        """Return True if a container on a target has printed a step."""
        return bool(self._seen)

    @property
    def has_pace(self) -> bool:
        """Return True if every container on a target has printed enough steps to know its pace."""
        return self.has_steps and all(one.last_step > one.first_step for one in self._seen.copy().values())

    def pods_on(self, node: str) -> dict[str, str]:
        """Return the names of the pods on a node that have printed a step, by their UIDs."""
        return {seen.uid: seen.pod for seen in self._seen.copy().values() if seen.node == node}

    def start(self) -> None:
        """Look every 2 s from now on, in a thread of its own."""
        self._repetition = self._run.clock.repeat("job-steps", self._look_again, _LOOK_EVERY_S)

    def stop(self) -> None:
        """End the watch."""
        if self._repetition:
            self._repetition.stop(_ENDS_WITHIN_S)

    def _look_again(self) -> float:
        try:
            self._look(self._pods())
        except AdapterError as error:
            if not self._was_trouble_said:
                self._run.problem(f"the job's steps could not be read: {error}")
            self._was_trouble_said = True
        return _LOOK_EVERY_S

    def _pods(self) -> list[Any]:
        labels = ",".join(f"{key}={value}" for key, value in sorted(self._expected.selector.items()))
        with self._run.kubernetes.explained(f"list the pods of {self._expected.namespace} for expect.job"):
            found = self._run.kubernetes.core.list_namespaced_pod(
                self._expected.namespace, label_selector=labels, limit=_MOST_PODS
            )
            return list(found.items)

    def _look(self, pods: list[Any]) -> None:
        alive = set()
        for pod in pods:
            status = self._container_status(pod)
            if pod.metadata.uid in self._others or status is None or not pod.spec.node_name:
                continue
            key = (pod.metadata.uid, status.restart_count)
            if key in self._ended_before:
                continue
            if _is_alive(pod, status):
                alive.add(key)
            if key in self._seen or len(self._seen) < _MOST_CONTAINERS:
                self._read(pod, status.restart_count)
        for key, seen in list(self._seen.items()):
            if key not in alive and not seen.ended:
                self._note(key, seen.model_copy(update={"ended": True}))

    def _container_status(self, pod: Any) -> Any:
        """Return the status of the container that is followed; None if it has not begun, and so has no log."""
        statuses = (pod.status.container_statuses if pod.status else None) or ()
        found = next((one for one in statuses if self._expected.container in (None, one.name)), None)
        if found and found.state and found.state.waiting and not found.restart_count:
            return None
        return found

    def _read(self, pod: Any, restarts: int) -> None:
        key = (pod.metadata.uid, restarts)
        last = self._steps(pod.metadata.name, tail_lines=_TAIL_LINES)
        if not last:
            return
        known = self._seen.get(key)
        first_at, first = (known.first_at, known.first_step) if known else ((self._steps(pod.metadata.name) or last)[0])
        seen = JobStepSeen(
            pod=pod.metadata.name,
            uid=pod.metadata.uid,
            restarts=restarts,
            node=pod.spec.node_name,
            first_step=first,
            first_at=first_at,
            last_step=last[-1][1],
            last_at=last[-1][0],
        )
        if seen != known:
            self._note(key, seen)

    def _note(self, key: tuple[str, int], seen: JobStepSeen) -> None:
        self._seen[key] = seen
        self._run.note(seen)

    def _steps(self, pod: str, **part: int) -> list[tuple[datetime, int]]:
        """Return the steps in a part of a pod's log, oldest first; none if the pod is gone."""
        text, container = b"", self._expected.container
        with self._run.kubernetes.explained(f"read the log of {pod} for expect.job"), absent_is_none():
            text = self._run.kubernetes.core.read_namespaced_pod_log(
                pod,
                self._expected.namespace,
                timestamps=True,
                limit_bytes=_LOG_BYTES,
                _preload_content=False,
                **({"container": container} if container else {}),
                **part,
            ).data
        lines = [line.partition(" ") for line in text.decode("utf-8", "replace").splitlines()]
        steps = steps_in(self._expected.step, [words for _, _, words in lines])
        found = []
        for (stamp, _, _), step in zip(lines, steps, strict=True):
            if step is not None and (at := _moment(stamp)):
                found.append((at, step))
        return found


def _is_alive(pod: Any, status: Any) -> bool:
    return bool(status.state and status.state.running and not pod.metadata.deletion_timestamp)


def _moment(stamp: str) -> datetime | None:
    """Return a log line's time stamp, cut to microseconds; None if the text is none."""
    try:
        at = datetime.fromisoformat(stamp[:_STAMP_CHARACTERS])
    except ValueError:
        return None
    return at if at.tzinfo else None
