"""The states of pods that the run watches anyway, as rows of the frame `pods`; it sends no requests of its own."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gameday.clock import Clock
from gameday.cluster.gpu_pods import GpuPod, gpu_pod
from gameday.cluster.list_watch import DELETED
from gameday.cluster.pods import PodSeen

DELETED_PHASE = "Deleted"
"""The phase in the frame for a pod that the API server no longer has."""
_ENDED = ("Succeeded", "Failed")
_ORDER = {"Running": 1, "Succeeded": 2, "Failed": 2, DELETED_PHASE: 3}


@dataclass(frozen=True)
class PodFate:
    """The end of a target's pod so far: the pod as it was when it ended, or as last seen."""

    pod: GpuPod
    deleted: bool
    """The API server no longer has it."""

    @property
    def has_left(self) -> bool:
        """True once the pod no longer holds anything of its node."""
        return self.deleted or self.pod.phase in _ENDED

    @property
    def ended_by_itself(self) -> bool:
        """True if the pod succeeded before it was disturbed or deleted."""
        return self.pod.phase == "Succeeded" and not self.pod.terminating and not self.pod.disruption

    @property
    def is_kept(self) -> bool:
        """True if the pod still runs and is not being ended."""
        return not self.has_left and not self.pod.terminating and not self.pod.disruption

    @property
    def description(self) -> str:
        """The fate in words, for the history."""
        if self.ended_by_itself:
            return "ended by itself"
        if self.is_kept:
            return "kept"
        if self.pod.disruption:
            why = f"disrupted: {self.pod.disruption}"
        else:
            why = "failed" if self.pod.phase == "Failed" else "deleted"
        return why if self.has_left else f"{why}, and still ending"


@dataclass(frozen=True)
class _State:
    at: datetime
    uid: str
    namespace: str
    pod: str
    node: str
    phase: str


class PodStates:
    """Each pod's first sight and every change of its phase or node, from the watches' threads."""

    def __init__(self, clock: Clock = Clock()) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._states: list[_State] = []
        self._newest: dict[str, tuple[str, str]] = {}
        self._gpus: dict[str, int] = {}
        self._fates: dict[str, PodFate] = {}

    def add_target_pod(self, kind: str, pod: Any) -> None:
        """Add a pod on a target (V1Pod) as its watch shows it; `kind` is the watch event's."""
        seen = gpu_pod(pod)
        phase = DELETED_PHASE if kind == DELETED else seen.phase
        with self._lock:
            self._gpus[seen.uid] = seen.gpus
            before = self._fates.get(seen.uid)
            # Events after a pod's end, such as a cleanup, are not part of its fate.
            had_ended = before is not None and before.pod.phase in _ENDED
            self._fates[seen.uid] = PodFate(before.pod if before and had_ended else seen, deleted=kind == DELETED)
            self._add(seen.uid, seen.namespace, seen.name, pod.spec.node_name or "", phase)

    def add_own_pod(self, namespace: str, seen: PodSeen) -> None:
        """Add a pod of the run itself, on any node; a pod that waits to be scheduled has no node."""
        with self._lock:
            self._gpus[seen.uid] = seen.gpus
            self._add(seen.uid, namespace, seen.name, seen.node or "", DELETED_PHASE if seen.gone else seen.phase)

    def fate(self, uid: str) -> PodFate:
        """Return the fate of a pod that a target's watch has shown."""
        with self._lock:
            return self._fates[uid]

    def rows(self) -> list[dict[str, object]]:
        """Return the rows of the frame `pods`, in order of time."""
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

    def _add(self, uid: str, namespace: str, pod: str, node: str, phase: str) -> None:
        last_node, last_phase = self._newest.get(uid, ("", "Pending"))
        node = node or last_node
        # Two watches may show the same pod. A phase never goes back: an earlier one from the slower watch is no change.
        is_outdated = _ORDER.get(phase, 0) < _ORDER.get(last_phase, 0)
        if uid in self._newest and (is_outdated or (node, phase) == (last_node, last_phase)):
            return
        self._newest[uid] = (node, phase)
        self._states.append(_State(self._clock.now(), uid, namespace, pod, node, phase))
