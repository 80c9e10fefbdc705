"""What became of the pods that the run watches anyway, as rows of the frame `pods`: costs no request of its own."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gameday.cluster.gpu_pods import GpuPod, gpu_pod
from gameday.cluster.list_watch import DELETED
from gameday.cluster.pods import PodSeen

GONE = "Deleted"
"""In place of a phase: the API server has the pod no more."""
_ENDED = ("Succeeded", "Failed")
_ORDER = {"Running": 1, "Succeeded": 2, "Failed": 2, GONE: 3}


@dataclass(frozen=True)
class _State:
    at: datetime
    uid: str
    namespace: str
    pod: str
    node: str
    phase: str


@dataclass(frozen=True)
class Fate:
    """What became of a pod of a target: the pod as it was when it ended, or else as last seen."""

    pod: GpuPod
    gone: bool
    """The API server has it no more."""

    @property
    def off(self) -> bool:
        """Whether it holds nothing of its node any more."""
        return self.gone or self.pod.phase in _ENDED

    @property
    def ended_by_itself(self) -> bool:
        """It came to its end before anybody disturbed or deleted it."""
        return self.pod.phase == "Succeeded" and not self.pod.terminating and not self.pod.disruption

    @property
    def kept(self) -> bool:
        """Whether it runs on, and will."""
        return not self.off and not self.pod.terminating and not self.pod.disruption

    @property
    def words(self) -> str:
        if self.ended_by_itself:
            return "ended by itself"
        if self.kept:
            return "kept"
        if self.pod.disruption:
            why = f"disrupted: {self.pod.disruption}"
        else:
            why = "failed" if self.pod.phase == "Failed" else "deleted"
        return why if self.off else f"{why}, and still ending"


class PodStates:
    """Each pod's first sight and every change of its phase or node; called in the watches' threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: list[_State] = []
        self._newest: dict[str, tuple[str, str]] = {}
        self._gpus: dict[str, int] = {}
        self._fates: dict[str, Fate] = {}

    def on_target(self, kind: str, pod: Any) -> None:
        """A V1Pod of a target node, as its watch shows it."""
        seen = gpu_pod(pod)
        phase = GONE if kind == DELETED else seen.phase
        with self._lock:
            self._gpus[seen.uid] = seen.gpus
            known = self._fates.get(seen.uid)
            # What is done to a pod that has ended, as by whoever tidies up, is no part of its fate.
            ended = known is not None and known.pod.phase in _ENDED
            self._fates[seen.uid] = Fate(known.pod if known and ended else seen, gone=kind == DELETED)
            self._add(seen.uid, seen.namespace, seen.name, pod.spec.node_name or "", phase)

    def fate(self, uid: str) -> Fate:
        """Of a pod that a target's watch has shown."""
        with self._lock:
            return self._fates[uid]

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
