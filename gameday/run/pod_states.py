"""What became of the pods that the run watches anyway, as rows of the frame `pods`: costs no request of its own."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kubernetes.informer import DELETED

from gameday.cluster.kubernetes import gpu_pod
from gameday.cluster.pods import PodSeen

GONE = "Deleted"
"""In place of a phase: the API server has the pod no more."""
_ORDER = {"Running": 1, "Succeeded": 2, "Failed": 2, GONE: 3}


@dataclass(frozen=True)
class _State:
    at: datetime
    uid: str
    namespace: str
    pod: str
    node: str
    phase: str


class PodStates:
    """Each pod's first sight and every change of its phase or node; called in the watches' threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: list[_State] = []
        self._newest: dict[str, tuple[str, str]] = {}
        self._gpus: dict[str, int] = {}

    def on_target(self, kind: str, pod: Any) -> None:
        """A V1Pod of a target node, as its watch shows it."""
        seen = gpu_pod(pod)
        phase = GONE if kind == DELETED else seen.phase
        with self._lock:
            self._gpus[seen.uid] = seen.gpus
            self._add(seen.uid, seen.namespace, seen.name, pod.spec.node_name or "", phase)

    def of_run(self, namespace: str, seen: PodSeen) -> None:
        """A pod of the run itself, wherever it is; one that waits to be scheduled has no node."""
        with self._lock:
            self._gpus[seen.uid] = seen.gpus
            self._add(seen.uid, namespace, seen.name, seen.node or "", GONE if seen.gone else seen.phase)

    def _add(self, uid: str, namespace: str, pod: str, node: str, phase: str) -> None:
        known_node, known_phase = self._newest.get(uid, ("", "Pending"))
        node = node or known_node
        # Two watches may show one pod, and a phase never goes back: what the slower one tells late is no change.
        late = _ORDER.get(phase, 0) < _ORDER.get(known_phase, 0)
        if uid in self._newest and (late or (node, phase) == (known_node, known_phase)):
            return
        self._newest[uid] = (node, phase)
        self._states.append(_State(datetime.now(UTC), uid, namespace, pod, node, phase))

    def rows(self) -> list[dict[str, object]]:
        """In order of time."""
        with self._lock:
            return [
                {
                    "time": state.at,
                    "namespace": state.namespace,
                    "pod": state.pod,
                    "node": state.node,
                    "phase": state.phase,
                    "gpus": self._gpus.get(state.uid),
                }
                for state in self._states
            ]
