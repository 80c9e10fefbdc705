"""The record of an episode: a quarantined node's faults, attempts and proofs, stored as one ConfigMap."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from enum import StrEnum

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from gameday.xid.catalogue import Remedy
from gameday_health.model import Fault

MOST_ENTRIES = 100
"""Entries of a timeline; a ConfigMap holds 1 MiB, and people read the newest ones."""
MOST_PAST = 16
_LONGEST_TEXT = 500


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class State(StrEnum):
    """The state of an episode; the last four are ends."""

    OPEN = "open"
    """The node is quarantined, and nothing was done yet."""
    WITHHELD = "withheld"
    """The breaker holds the repair back."""
    DRAINING = "draining"
    REPAIRING = "repairing"
    VALIDATING = "validating"
    RETURNED = "returned"
    HANDED_OVER = "handed-over"
    """A person must act; the node stays out of service."""
    CANCELLED = "cancelled"
    """A person took over."""
    NODE_GONE = "node-gone"

    @property
    def is_end(self) -> bool:
        """True for a state in which nothing more is done."""
        return self in (State.RETURNED, State.HANDED_OVER, State.CANCELLED, State.NODE_GONE)

    @property
    def is_repair(self) -> bool:
        """True while the episode works on its node, which the breaker counts."""
        return self in (State.DRAINING, State.REPAIRING, State.VALIDATING)


class Scope(StrEnum):
    """The pods that a drain moves away."""

    NOTHING = "nothing"
    FAULTY_GPU = "faulty-gpu"
    """All pods with GPUs except those that the agent shows to be on other GPUs."""
    GPU_PODS = "gpu-pods"
    ALL_PODS = "all-pods"
    """All pods that a controller would start elsewhere, and all pods that hold GPUs."""


class SeenFault(_Record):
    """A quarantining fault as the episode knows it; two with the same fields are one fault."""

    kind: str
    code: int | None
    device: str | None
    """PCI address of the GPU or switch, like 0000:4e:00."""
    at: AwareDatetime
    remedy: Remedy

    @classmethod
    def of(cls, fault: Fault) -> SeenFault:
        """Return a fault of the node's annotation."""
        return cls(kind=str(fault.kind), code=fault.code, device=fault.pci, at=fault.at, remedy=fault.remedy)

    def __str__(self) -> str:
        code = f" {self.code}" if self.code is not None else ""
        return f"{self.kind}{code}{f' on {self.device}' if self.device else ''}"


class Outcome(StrEnum):
    """The outcome of an attempt or of QA."""

    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"


class Attempt(_Record):
    """An attempt of one rung. It counts from its intent on, however it ends."""

    repair: str
    began: AwareDatetime
    ended: AwareDatetime | None = None
    outcome: Outcome = Outcome.RUNNING
    why: str = ""
    boot: str
    """The bootID before it."""
    faults: int
    """The number of the episode's faults when it began: it did not repair later ones."""


class QaRun(_Record):
    """A run of QA."""

    attempt: int
    """The number of attempts before it."""
    faults: int
    """The number of the episode's faults when it began."""
    boot: str
    """The bootID that it is a proof for."""
    began: AwareDatetime
    ended: AwareDatetime | None = None
    outcome: Outcome = Outcome.RUNNING
    why: str = ""


class ActKind(StrEnum):
    """An act of an episode."""

    DRAIN = "drain"
    RUNG = "rung"
    QA = "qa"
    RETURN = "return"
    HAND_OVER = "hand-over"


class SentPod(_Record):
    """An agent's pod of the current act, by name; `uid` is empty until the API server has made it."""

    name: str
    uid: str = ""


class Act(_Record):
    """The current act: its intent, which a process that starts again finds."""

    kind: ActKind
    began: AwareDatetime
    pods: tuple[SentPod, ...] = ()

    def uid_of(self, name: str) -> str:
        """Return the UID of a pod that was sent; empty for one that may not have been sent."""
        return next((pod.uid for pod in self.pods if pod.name == name), "")


class Entry(_Record):
    """A line of the episode's timeline."""

    at: AwareDatetime
    text: str


class PastEpisode(_Record):
    """An earlier episode of the same node."""

    id: str
    ended: AwareDatetime
    state: State
    faults: tuple[SeenFault, ...]
    rungs: tuple[tuple[str, AwareDatetime], ...]
    """Repair and beginning of each attempt."""


class Episode(_Record):
    """A node's illness, from quarantine to return or to a person."""

    id: str
    node: str
    uid: str
    """UID of the Node object: a node that joins again under the same name is another node."""
    boot: str
    """The bootID at the beginning."""
    gpus: int | None
    """Number of physical GPUs that QA must count; None if it is unknown."""
    gpu_capacity: int | None
    """Capacity of nvidia.com/gpu that the node must offer after a boot; None if it had none."""
    opened: AwareDatetime
    cordoned: bool
    """The node was cordoned at the beginning or since then, so that an uncordon must be a person's."""
    faults: tuple[SeenFault, ...]
    """Every fault that was seen; only added to."""
    state: State = State.OPEN
    since: AwareDatetime
    """Beginning of `state`."""
    drained: Scope = Scope.NOTHING
    drained_gpus: tuple[str, ...] = ()
    """PCI addresses of the GPUs that the drained pods held, if only those pods have left."""
    drain_failed: str = ""
    operands_away: tuple[str, ...] = ()
    """Labels of the GPU operator's operands that we sent away for a reset, and must bring back."""
    attempts: tuple[Attempt, ...] = ()
    qa: tuple[QaRun, ...] = ()
    act: Act | None = None
    ended: AwareDatetime | None = None
    why: str = ""
    """The reason for the state, if it is withheld or an end."""
    notified: bool = False
    """True once the webhook has taken the evidence of a node that was handed over."""
    holder: str = ""
    """The process that works on the episode; it changes only by a take-over."""
    timeline: tuple[Entry, ...] = ()
    past: tuple[PastEpisode, ...] = Field(default=(), max_length=MOST_PAST)
    """Earlier episodes of this node, the oldest first."""

    @property
    def rung(self) -> str:
        """The repair of the newest attempt; empty before the first."""
        return self.attempts[-1].repair if self.attempts else ""

    @property
    def faulty_gpus(self) -> tuple[str, ...]:
        """PCI addresses of the GPUs of all faults; empty if a fault names none, or needs more than a reset."""
        if any(fault.remedy not in (Remedy.GPU_RESET, Remedy.NONE) for fault in self.faults):
            return ()
        devices = dict.fromkeys(fault.device for fault in self.faults)
        return tuple(device for device in devices if device) if None not in devices else ()

    def tries_of(self, repair: str) -> int:
        """Return the number of attempts of a rung."""
        return sum(attempt.repair == repair for attempt in self.attempts)

    def as_past(self, now: datetime) -> PastEpisode:
        """Return what later episodes need to know of this one."""
        rungs = tuple((attempt.repair, attempt.began) for attempt in self.attempts)
        return PastEpisode(id=self.id, ended=self.ended or now, state=self.state, faults=self.faults, rungs=rungs)

    def noting(self, now: datetime, text: str) -> Episode:
        """Return the episode with one more line of its timeline."""
        entries = (*self.timeline, Entry(at=now, text=text[:_LONGEST_TEXT]))[-MOST_ENTRIES:]
        return self.model_copy(update={"timeline": entries})


def new_episode_id(now: datetime) -> str:
    """Return an id that is unique in the cluster, sortable, and fit for an object's name and a log marker."""
    return f"ep-{now.astimezone(UTC):%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:6]}"
