"""Watch for work that waits for GPUs, so that probes make room even if the scheduler preempts nobody.

A scheduler that preempts takes a probe's GPUs by itself, because the probe's priority is below every ordinary pod's.
Without preemption, or with a quota that counts our pods, real work would wait for a probe.
"""

from __future__ import annotations

import threading
from typing import Self

from gameday.cluster.gpu_pods import gpu_pod
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.manifests import RUN_LABEL
from gameday.errors import KubernetesError

_LOOK_EVERY_S = 1.0
_UNKNOWN_AFTER = 3
"""Failed looks in a row after which probes end: it is then unknown whether work waits."""


class WaitingWork:
    """Look once a second for unplaced GPU pods that came after this run began; a context manager.

    Pods that waited before would not fit on idle GPUs either: they wait for something else.
    """

    def __init__(self, kubernetes: Kubernetes) -> None:
        """Prepare; nothing is looked at yet."""
        self._kubernetes = kubernetes
        self._stop = threading.Event()
        self._before: frozenset[str] = frozenset()
        self._thread = threading.Thread(target=self._look, name="waiting work", daemon=True)
        self.who = ""
        """The pod that waits for GPUs, or why that is unknown; empty if none waits."""

    def __enter__(self) -> Self:
        """Note who waits already, and begin. Raises KubernetesError."""
        self._before = frozenset(self._unplaced())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        failed = 0
        while not self._stop.wait(_LOOK_EVERY_S):
            try:
                waiting = self._unplaced()
            except KubernetesError as error:
                failed += 1
                self.who = f"it is not known whether work waits: {error}" if failed >= _UNKNOWN_AFTER else self.who
                continue
            failed = 0
            new = sorted(name for uid, name in waiting.items() if uid not in self._before)
            self.who = f"pod {new[0]} waits for GPUs" if new else ""

    def _unplaced(self) -> dict[str, str]:
        """Return UID and namespace/name of other people's GPU pods for which the scheduler found no node."""
        with self._kubernetes.explained("list the pods that wait for a node"):
            pods = self._kubernetes.core.list_pod_for_all_namespaces(
                field_selector="spec.nodeName=,status.phase=Pending"
            ).items
        return {
            pod.metadata.uid: f"{pod.metadata.namespace}/{pod.metadata.name}"
            for pod in pods
            if gpu_pod(pod).holds_gpu
            and RUN_LABEL not in (pod.metadata.labels or {})
            and any(one.type == "PodScheduled" and one.status == "False" for one in (pod.status.conditions or ()))
        }
