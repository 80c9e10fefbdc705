"""What every fault is: typed parameters, and inject, hold, undo and verify on the host boundary."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Generic, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from gameday.host.base import Host
from gameday.host.privileges import UNSTATED, PodSecurity
from gameday.plan.models import FaultParameters


class Layer(StrEnum):
    """Where a fault enters. What enters at one layer does not reach the others by itself."""

    KERNEL_LOG = "kernel log"
    DCGM_CACHE = "DCGM cache"
    NVML = "NVML"
    HARDWARE_LOAD = "hardware load"
    NETWORK = "network"
    NODE = "node"
    TELEMETRY = "telemetry"
    CONTROL_PLANE = "control plane"
    SEVERAL = "several layers"


class Evidence(BaseModel):
    """What was read before, written, and read after; lines for people, in order."""

    model_config = ConfigDict(frozen=True)

    lines: tuple[str, ...] = ()
    written_at: AwareDatetime | None = Field(
        default=None, description="host clock right before the change; None where only the caller's clock is known"
    )
    undo_state: dict[str, str] = Field(
        default={}, description="prior values an undo in another process needs; strings, so that it fits a ledger"
    )


@dataclass(frozen=True)
class Claim:
    """Something of the node that a fault takes for itself: two that take the same would undo one another."""

    what: str
    gpu: int | None = None
    """NVML index; None: the node's, or of a GPU that is chosen later, and so perhaps of any."""
    shared: bool = False
    """It only has to stay as it is: two faults that both need it do not fight."""
    everywhere: bool = False
    """Other nodes feel it too: a season lets no other game-day stand beside this one."""

    def fights(self, other: Claim) -> bool:
        same_gpu = self.gpu is None or other.gpu is None or self.gpu == other.gpu
        return self.what == other.what and same_gpu and not (self.shared and other.shared)


NODE = "the node itself"
"""Claimed by a fault that the agent does not outlive or cannot end early; needed by every other that has an undo."""
HOST_ENGINE = "DCGM's host engine"
BUS = "the GPU on the PCI bus"


@dataclass(frozen=True)
class Reach:
    """Where a fault enters, what it does not reach, and who can see it; for people, and for the report."""

    layer: str
    does_not_reach: str
    seen_by: tuple[str, ...]


@dataclass(frozen=True)
class CanaryJob:
    """How a canary that is started while the fault is in differs from others: for faults that are the job itself."""

    environment: dict[str, str] = field(default_factory=dict)
    far_from_gpu: bool = False
    """Fed from the far NUMA node."""


P = TypeVar("P", bound=FaultParameters)


class Fault(ABC, Generic[P]):
    """One way to break one thing.

    Every method that is given a host raises HostError when the host says no.
    `undo` must be idempotent, and must work in another process from
    `undo_state` alone: what `prior` told where `inject` failed or was killed
    half way, and empty where not even that was kept.
    """

    parameters: ClassVar[type[FaultParameters]]
    layer: ClassVar[Layer]
    security: ClassVar[PodSecurity] = UNSTATED
    """The rights over its node that the injector's pod needs, and no more."""
    summary: ClassVar[str]
    does_not_reach: ClassVar[str]
    seen_by: ClassVar[tuple[str, ...]]

    def details(self) -> str:
        """Markdown for docs/faults.md, such as a table that a docstring could not keep true."""
        return ""

    def claims(self, parameters: P) -> tuple[Claim, ...]:
        """What the fault takes for itself, so that no other is put in beside it. Unless it says so, all of its kind."""
        return (Claim(parameters.type), Claim(NODE, shared=True))

    def security_of(self, parameters: P) -> PodSecurity:
        """What these parameters need; a fault made of others needs what they do."""
        return self.security

    def canary_job(self, parameters: P) -> CanaryJob:
        return CanaryJob()

    def reach(self, parameters: P) -> Reach:
        return Reach(self.layer, self.does_not_reach, self.seen_by)

    def prior(self, parameters: P, gpu: int, host: Host) -> dict[str, str]:
        """What an undo will need to know. The agent keeps it before it injects.

        Changes nothing, so this is the place to refuse what cannot go in.
        """
        return {}

    @abstractmethod
    def inject(self, parameters: P, gpu: int, host: Host) -> Evidence: ...

    def hold(self, parameters: P, gpu: int, host: Host, ended: threading.Event) -> tuple[str, ...] | None:
        """Keep the fault in until `ended`; most faults stay by themselves. Lines returned are evidence of the hold."""
        ended.wait()
        return None

    def warnings(self, parameters: P) -> tuple[str, ...]:
        """What these parameters do beyond the fault itself, for the person who approves the run."""
        return ()

    @abstractmethod
    def undo(self, parameters: P, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence: ...

    @abstractmethod
    def verify_undone(self, parameters: P, gpu: int, host: Host, undo_state: dict[str, str]) -> bool: ...
