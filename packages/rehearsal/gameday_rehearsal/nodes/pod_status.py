"""A pod's status as a kubelet writes it: phase, conditions and container states, from the state of the containers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gameday_rehearsal.nodes.container_log import ContainerLog
from gameday_rehearsal.nodes.containers import ContainerProcess
from kubesim.client import Object
from kubesim.clock import now_utc, parse_time, rfc3339

_READY_TO_START = "PodReadyToStartContainers"


@dataclass(frozen=True)
class Ended:
    exit_code: int
    reason: str
    message: str
    started: datetime
    finished: datetime


@dataclass
class Container:
    """A container of a pod and its state; it runs while it has a `process`."""

    spec: Object
    restarts: int = 0
    process: ContainerProcess | None = None
    started: datetime | None = None
    ended: Ended | None = None
    last: Ended | None = None
    waiting: tuple[str, str] = ("ContainerCreating", "")
    ready: bool = False
    log: ContainerLog | None = None
    previous_log: ContainerLog | None = None

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    def end(self, exit_code: int, reason: str, message: str) -> None:
        started = self.started or now_utc()
        self.ended = Ended(exit_code, reason, message, started, now_utc())
        self.process, self.ready = None, False

    def begin_again(self) -> None:
        """Move the last end into lastState, and wait to be created again."""
        self.last, self.ended = self.ended, None
        self.restarts += 1
        self.previous_log = self.log
        self.waiting = ("ContainerCreating", "")

    def restored(self, status: Object) -> None:
        """Take over what an earlier kubelet process wrote; what ran then is lost."""
        self.restarts = int(status.get("restartCount", 0))
        state = status.get("state") or {}
        if "terminated" in state:
            self.ended = _ended(state["terminated"])
        elif "running" in state:
            self.started = parse_time(state["running"]["startedAt"])

    def status(self, pod_uid: str) -> Object:
        if self.process and self.started:
            state: Object = {"running": {"startedAt": rfc3339(self.started)}}
        elif self.ended:
            state = {"terminated": self._terminated(self.ended, pod_uid)}
        else:
            reason, message = self.waiting
            state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
        return {
            "name": self.name,
            "image": self.spec["image"],
            "imageID": f"virtual://{self.spec['image']}" if self.started else "",
            "containerID": self._id(pod_uid) if self.started else "",
            "ready": self.ready,
            "started": self.process is not None,
            "restartCount": self.restarts,
            "state": state,
            "lastState": {"terminated": self._terminated(self.last, pod_uid)} if self.last else {},
        }

    def _terminated(self, ended: Ended, pod_uid: str) -> Object:
        return {
            "exitCode": ended.exit_code,
            "reason": ended.reason,
            **({"message": ended.message} if ended.message else {}),
            "startedAt": rfc3339(ended.started),
            "finishedAt": rfc3339(ended.finished),
            "containerID": self._id(pod_uid),
        }

    def _id(self, pod_uid: str) -> str:
        return f"virtual://{pod_uid}/{self.name}/{self.restarts}"


def _ended(terminated: Object) -> Ended:
    return Ended(
        exit_code=int(terminated.get("exitCode", 0)),
        reason=terminated.get("reason", ""),
        message=terminated.get("message", ""),
        started=parse_time(terminated["startedAt"]) if terminated.get("startedAt") else now_utc(),
        finished=parse_time(terminated["finishedAt"]) if terminated.get("finishedAt") else now_utc(),
    )


@dataclass
class PodState:
    """Everything in a pod's status; `final` is the phase and reason that the kubelet itself has decided."""

    uid: str
    policy: str
    ip: str
    init: Sequence[Container]
    main: Sequence[Container]
    start_time: datetime = field(default_factory=now_utc)
    final: tuple[str, str, str] | None = None  # phase, reason, message
    all_ended: bool = False
    generation: int | None = None  # of the object that the status is about; servers before 1.33 count none for pods
    _since: dict[str, tuple[bool, str, datetime]] = field(default_factory=dict)

    def observe(self, pod: Object) -> bool:
        """Take the object; return True if its specification is newer than that of the status."""
        before, self.generation = self.generation, pod["metadata"].get("generation")
        return before != self.generation

    @property
    def phase(self) -> str:
        if self.final:
            return self.final[0]
        if self.all_ended:
            failed = any(c.ended is None or c.ended.exit_code for c in (*self.init, *self.main))
            return "Failed" if failed else "Succeeded"
        begun = any(c.started for c in self.main)
        return "Running" if begun else "Pending"

    def document(self) -> Object:
        """Return the status to write. Conditions keep their transition times while they do not change."""
        phase = self.phase
        status: Object = {
            "phase": phase,
            "hostIP": "127.0.0.1",
            "hostIPs": [{"ip": "127.0.0.1"}],
            "startTime": rfc3339(self.start_time),
            "conditions": self._conditions(phase),
            **self._observed(),
        }
        if self.final and self.final[1]:
            status["reason"], status["message"] = self.final[1:]
        if any(c.started for c in (*self.init, *self.main)):
            status["podIP"], status["podIPs"] = self.ip, [{"ip": self.ip}]
        if not (self.final and not any(c.started for c in self.main)):  # a rejected pod has no containers
            status["containerStatuses"] = [c.status(self.uid) for c in self.main]
            if self.init:
                status["initContainerStatuses"] = [c.status(self.uid) for c in self.init]
        return status

    def _conditions(self, phase: str) -> list[Object]:
        over = phase in ("Succeeded", "Failed")
        initialized = over or all(c.ended and c.ended.exit_code == 0 for c in self.init)
        ready = not over and bool(self.main) and all(c.ready for c in self.main)
        why = "" if ready else {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "ContainersNotReady")
        unready = [c.name for c in self.main if not c.ready]
        message = f"containers with unready status: [{' '.join(unready)}]" if why == "ContainersNotReady" else ""
        return [
            self._condition(_READY_TO_START, not over and any(c.started for c in (*self.init, *self.main)), ""),
            self._condition("Initialized", initialized, "" if initialized else "ContainersNotInitialized"),
            self._condition("Ready", ready, why, message),
            self._condition("ContainersReady", ready, why, message),
            self._condition("PodScheduled", True, ""),
        ]

    def _condition(self, kind: str, holds: bool, reason: str, message: str = "") -> Object:
        before = self._since.get(kind)
        if before is None or before[0] != holds:
            self._since[kind] = (holds, reason, now_utc())
        condition: dict[str, Any] = {
            "type": kind,
            "status": "True" if holds else "False",
            "lastProbeTime": None,
            "lastTransitionTime": rfc3339(self._since[kind][2]),
        }
        # Written even if empty: otherwise a strategic merge would keep an old reason.
        return {**condition, "reason": reason or None, "message": message or None, **self._observed()}

    def _observed(self) -> Object:
        return {} if self.generation is None else {"observedGeneration": self.generation}
