"""What every fault is: typed parameters, and inject, hold, undo and verify on the host boundary."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from enum import StrEnum
from typing import ClassVar, Generic, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from gameday.host.base import Host
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


P = TypeVar("P", bound=FaultParameters)


class Fault(ABC, Generic[P]):
    """One way to break one thing.

    `inject`, `undo` and `verify_undone` raise HostError when the host says no.
    `undo` must be idempotent, and must work in another process from
    `undo_state` alone: empty when `inject` failed, or was killed, half way.
    """

    parameters: ClassVar[type[FaultParameters]]
    layer: ClassVar[Layer]
    summary: ClassVar[str]
    does_not_reach: ClassVar[str]
    seen_by: ClassVar[tuple[str, ...]]

    @abstractmethod
    def inject(self, parameters: P, gpu: int, host: Host) -> Evidence: ...

    def hold(self, parameters: P, gpu: int, host: Host, ended: threading.Event) -> None:
        """Keep the fault in until `ended`; most faults stay by themselves."""
        ended.wait()

    def warnings(self, parameters: P) -> tuple[str, ...]:
        """What these parameters do beyond the fault itself, for the person who approves the run."""
        return ()

    @abstractmethod
    def undo(self, parameters: P, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence: ...

    @abstractmethod
    def verify_undone(self, parameters: P, gpu: int, host: Host, undo_state: dict[str, str]) -> bool: ...
