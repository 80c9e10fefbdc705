"""A fault: its three methods, and the values that it speaks in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Generic, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from gameday.host.base import Host
from gameday.host.privileges import UNSTATED, PodSecurity
from gameday.plan.fault import FaultParameters
from gameday.values.memory import MemoryBlocks


class Layer(StrEnum):
    """The place where a fault enters. A fault that enters at one layer does not reach the others by itself."""

    KERNEL_LOG = "kernel log"
    DRIVER = "driver"
    DCGM_CACHE = "DCGM cache"
    NVML = "NVML"
    HARDWARE_LOAD = "hardware load"
    NETWORK = "network"
    WORKLOAD = "workload"
    NODE = "node"
    TELEMETRY = "telemetry"
    CONTROL_PLANE = "control plane"
    SEVERAL = "several layers"


class Evidence(BaseModel):
    """Lines for people: the values before a change, the change itself, and the values after it."""

    model_config = ConfigDict(frozen=True)

    lines: tuple[str, ...] = ()
    written_at: AwareDatetime | None = Field(
        default=None, description="host clock right before the change; None if only the caller's clock is known"
    )
    logged_at: AwareDatetime | None = Field(
        default=None, description="of a real Xid: the kernel's stamp of the first line about it, by the host's clock"
    )
    nvml_at: AwareDatetime | None = Field(default=None, description="of a real Xid: NVML's event, by the host's clock")
    undo_state: dict[str, str] = Field(
        default={}, description="prior values an undo in another process needs; strings, so that it fits a ledger"
    )
    memory: MemoryBlocks | None = Field(default=None, description="of a fault that holds a GPU's memory, once it is in")


@dataclass(frozen=True)
class Claim:
    """A resource of the node that a fault takes; two faults that take the same one would undo each other."""

    resource: str
    gpu: int | None = None
    """NVML index. None: the resource is the node's, or that of a GPU that is chosen later, which may be any."""
    shared: bool = False
    """The fault only needs the resource to stay as it is: faults that share it do not conflict."""
    cluster_wide: bool = False
    """Other nodes feel the fault, too: a season runs no other game-day at the same time."""

    def conflicts_with(self, other: Claim) -> bool:
        """Return True if two faults with these claims cannot be in one node at the same time."""
        same_gpu = self.gpu is None or other.gpu is None or self.gpu == other.gpu
        return self.resource == other.resource and same_gpu and not (self.shared and other.shared)


NODE = "the node itself"
"""Claimed by a fault that the agent does not survive or cannot end early; shared by every other with a claim."""
HOST_ENGINE = "DCGM's host engine"
BUS = "the GPU on the PCI bus"


@dataclass(frozen=True)
class Reach:
    """The layer where a fault enters, what it does not reach, and who can see it; shown to people."""

    layer: str
    does_not_reach: str
    seen_by: tuple[str, ...]


@dataclass(frozen=True)
class NodeNeeds:
    """The preparations of a node for a fault."""

    dcgm: bool = False
    """The fault goes into the node's DCGM host engine, which only its own clients see."""
    idle_gpu: bool = False
    """No process may have the GPU open: for a reset, a removal, an effect on unused GPUs only."""
    operands_away: bool = False
    """The GPU operator's operands leave the node for the injection, and come back right after it."""
    operands_away_to_undo: bool = False
    """The GPU operator's operands also leave the node while the fault is taken out."""


@dataclass(frozen=True)
class CanaryJob:
    """The difference of a canary that starts while the fault is in, for faults of the job itself."""

    environment: dict[str, str] = field(default_factory=dict)
    """Variables that the canary is given."""
    far_from_gpu: bool = False
    """The canary copies from the far NUMA node."""


P = TypeVar("P", bound=FaultParameters)


class Fault(ABC, Generic[P]):
    """A way to break something on a node: these three methods, and those of gameday/faults/optional.py that it needs.

    `gpu` is the NVML index that the run chose. Every method with a host raises HostError if the host refuses.
    docs/writing-a-fault.md builds one step by step.
    """

    parameters: ClassVar[type[FaultParameters]]
    """The model of the plan's keys under `fault`; its `type` is a Literal of the fault's name."""
    layer: ClassVar[Layer]
    """The layer where the fault enters."""
    summary: ClassVar[str]
    """The fault's line in lists and in the plan's schema."""

    does_not_reach: ClassVar[str] = ""
    """The layers and readers that do not notice the fault, for people who wonder why nothing happened."""
    seen_by: ClassVar[tuple[str, ...]] = ()
    """The programs, alerts and tests that can notice the fault."""
    details: ClassVar[str] = ""
    """Markdown for docs/faults.md, such as a table made from the code."""
    security: ClassVar[PodSecurity] = UNSTATED
    """The rights over its node that the injector's pod needs, and no more. Default: none."""
    api_account: ClassVar[str] = ""
    """The service account with which the injector's pod uses the API server. Default: it does not use it."""

    @abstractmethod
    def inject(self, parameters: P, gpu: int, host: Host) -> Evidence:
        """Put the fault in, and read back that it is."""

    @abstractmethod
    def undo(self, parameters: P, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        """Take the fault out.

        It may be called any number of times, and in another process than `inject`.

        Args:
            parameters: The plan's.
            gpu: The NVML index that the run chose.
            host: The node.
            undo_state: The values of `prior_state` and of `inject`; only those of `prior_state` if `inject` failed or
                was killed, and empty if not even they were kept.
        """

    @abstractmethod
    def verify_undone(self, parameters: P, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        """Return True if the fault is out. It reads the host, and does not rely on `undo`."""
