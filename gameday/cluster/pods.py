"""Follow our own pods by one watch, and remember the termination messages of those that are gone.

A pod's termination message is only readable until the kubelet removes the pod; a watch sees it in passing, a later GET
does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from gameday.cluster.gpu_pods import GpuPod, gpu_pod
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.list_watch import DELETED
from gameday.cluster.manifests import ROLE_LABEL, RUN_LABEL
from gameday.cluster.watch import SYNCED_WITHIN_S


@dataclass(frozen=True)
class PodSeen:
    """A pod as the watch last showed it."""

    name: str
    uid: str
    role: str
    node: str | None
    phase: str
    reason: str
    ready: bool
    gone: bool
    """True once the API server has deleted it."""
    unschedulable: str | None
    """The scheduler's own message if it found no place; None if it found one or has not looked yet."""
    termination: str | None
    """The termination message of the container that ended; empty if it left none, None while all run."""
    owner_job: str | None
    gpus: int = 0
    waiting: str = ""
    """The kubelet's reason why its container waits, e.g. ContainerCreating or ImagePullBackOff."""

    @property
    def ended(self) -> bool:
        """True once no container of the pod runs."""
        return self.gone or self.phase in ("Succeeded", "Failed") or self.termination is not None

    @property
    def why_not_running(self) -> str:
        """The scheduler's message, or the kubelet's; empty before either has looked at the pod."""
        if self.unschedulable or not self.node:
            return self.unschedulable or ""
        return f"{self.phase} on {self.node}: {self.waiting or self.reason or 'the kubelet says nothing of it'}"


class PodFollower:
    """The pods of one run; a context manager."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        run_id: str,
        on_change: Callable[[PodSeen], None] | None = None,
        *,
        of_every_run: bool = False,
        label: str = RUN_LABEL,
    ) -> None:
        """Prepare the watch; nothing is sent until the context is entered.

        Args:
            kubernetes: The cluster.
            run_id: The run, or another owner if `label` says so.
            on_change: Called in the watch's thread with each pod of the run that has changed.
            of_every_run: Also watch the pods of all other runs, for `pods_of_other_runs`.
            label: The label that names the pods' owner.
        """
        self.clock = kubernetes.clock
        self._label = label
        self._run_id = run_id
        self._seen: dict[str, PodSeen] = {}
        self._notify = on_change
        self._follower = kubernetes.follow(
            kubernetes.core.list_namespaced_pod,
            self._event,
            namespace=kubernetes.profile.namespace,
            label_selector=label if of_every_run else f"{label}={run_id}",
        )

    def __enter__(self) -> Self:
        self._follower.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._follower.stop()

    def wait_synced(self, timeout_s: float = SYNCED_WITHIN_S) -> bool:
        """Wait until the first state has been read or refused; return True if it has been read."""
        return self._follower.wait_synced(timeout_s)

    def require_synced(self, timeout_s: float = SYNCED_WITHIN_S) -> None:
        """Wait until the first state has been read; errors as for `Follower.require_synced`."""
        self._follower.require_synced(timeout_s)

    def seen(self, name: str) -> PodSeen | None:
        """Return the run's pod of that name as last seen, even if it is gone; None if it was never seen."""
        return self._seen.get(name)

    def present(self) -> list[PodSeen]:
        """Return the run's pods that are not gone."""
        return [pod for pod in list(self._seen.values()) if not pod.gone]

    def gpu_pods_on(self, node: str) -> list[GpuPod]:
        """Return the run's pods that hold GPUs of a node, as last seen."""
        found = [gpu_pod(pod) for pod in self._objects(own=True) if pod.spec.node_name == node]
        return [pod for pod in found if pod.holds_gpu]

    def pods_of_other_runs(self) -> list[Any]:
        """Return the pods (V1Pod) of other runs, as last seen."""
        return self._objects(own=False)

    def _objects(self, *, own: bool) -> list[Any]:
        return [pod for pod in self._follower.objects() if self._is_own(pod) is own]

    def _is_own(self, pod: Any) -> bool:
        return bool(pod.metadata.labels[self._label] == self._run_id)

    def wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until `condition` is true; it is evaluated at every change. Return False after `timeout_s`."""
        return self.clock.wait_changed(self._follower.changed, condition, timeout_s)

    def wait_gone(self, name: str, uid: str | None, timeout_s: float) -> bool:
        """Wait until the watch has seen the pod go; return False after `timeout_s`.

        Args:
            name: The pod.
            uid: The server's answer to the pod's deletion. With a uid, a pod that this watch has not seen yet is not
                gone. None: there was no such pod, so only one that the watch still shows is waited for.
            timeout_s: The longest wait.
        """

        def gone() -> bool:
            pod = self._seen.get(name)
            if pod is None or (uid is not None and pod.uid != uid):
                return uid is None
            return pod.gone

        return self.wait(gone, timeout_s)

    def _event(self, kind: str, pod: Any) -> None:
        if not self._is_own(pod):
            return
        seen = pod_seen(pod, gone=kind == DELETED)
        earlier = self._seen.get(seen.name)
        if seen.gone and seen.termination is None and earlier is not None and earlier.uid == seen.uid:
            seen = replace(seen, termination=earlier.termination)
        self._seen[seen.name] = seen
        if self._notify:
            self._notify(seen)


def pod_seen(pod: Any, *, gone: bool) -> PodSeen:
    """Return a V1Pod as a PodSeen; `gone` for one that the watch reported as deleted."""
    status = pod.status
    conditions = {condition.type: condition for condition in (status.conditions if status else None) or []}
    scheduled, ready = conditions.get("PodScheduled"), conditions.get("Ready")
    owners = [owner.name for owner in pod.metadata.owner_references or [] if owner.kind == "Job"]
    return PodSeen(
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        role=(pod.metadata.labels or {}).get(ROLE_LABEL, ""),
        node=pod.spec.node_name,
        phase=(status.phase if status else None) or "Unknown",
        reason=(status.reason if status else None) or "",
        ready=ready is not None and ready.status == "True",
        gone=gone,
        unschedulable=(scheduled.message or scheduled.reason or "")
        if scheduled and scheduled.status == "False"
        else None,
        termination=_termination(status),
        owner_job=owners[0] if owners else None,
        gpus=gpu_pod(pod).gpus,
        waiting=_waiting(status),
    )


def _waiting(status: Any) -> str:
    for container in (status.container_statuses if status else None) or []:
        if container.state and container.state.waiting:
            return ": ".join(filter(None, (container.state.waiting.reason, container.state.waiting.message)))
    return ""


def _termination(status: Any) -> str | None:
    for container in (status.container_statuses if status else None) or []:
        if container.state and container.state.terminated:
            return container.state.terminated.message or ""
    return None
