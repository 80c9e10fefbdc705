"""Nodes as a game-day sees them: targets, taints, snapshots."""

from __future__ import annotations

from enum import StrEnum

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

NODE_LIFECYCLE_DOMAIN = "node.kubernetes.io/"
"""Taints of the node lifecycle controller: they come and go by themselves with the node's conditions."""
GFD_TIMESTAMP_LABEL = "nvidia.com/gfd.timestamp"
"""GPU feature discovery writes its own start time into this label (NVIDIA/k8s-device-plugin, internal/lm). A reboot
or a restart of its pod changes it, although nothing about the node has changed."""


VIRTUAL_PROVIDER = "virtual://"
"""The providerID of a rehearsal's nodes begins with this; no cloud has a provider of that name."""
MAX_NODES = 5000
"""The most nodes, the same number that Kubernetes supports (kubernetes.io, Considerations for large clusters)."""


class NodeRole(StrEnum):
    """The part of a target in a game-day."""

    GPU = "GPU node"
    """The fault breaks this node, or a GPU of it."""
    API_CLIENT = "API-client node"
    """The fault's clients run here; they load the control plane, and the node itself stays whole."""


class Target(BaseModel):
    """The node that a fault is aimed at, and its GPU if the fault needs one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    node: str
    gpu: int | None = Field(default=None, description="NVML index on the node")

    def __str__(self) -> str:
        return self.node if self.gpu is None else f"{self.node} GPU {self.gpu}"


class StruckDomain(BaseModel):
    """A rack, leaf switch or other failure domain that a game-day breaks; its GPU nodes share a label's value."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: str
    value: str
    nodes: int = Field(description="GPU nodes of the domain, targets or not")
    percent: float = Field(description="share of them that the plan asked for")

    def __str__(self) -> str:
        return f"{self.label}={self.value}"


class Taint(BaseModel):
    """A node's taint."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    value: str = ""
    effect: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class NodeReadiness(BaseModel):
    """A node's condition Ready, and the time since when it has that status."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ready: bool
    since: AwareDatetime | None = Field(description="the condition's lastTransitionTime; None if it has none")


class NodeSnapshot(BaseModel):
    """The parts of a Node that a game-day may change, or may be blamed for changing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    node: str
    resource_version: str
    unschedulable: bool
    taints: tuple[Taint, ...]
    labels: dict[str, str]
    annotations: dict[str, str]
    conditions: dict[str, str] = Field(description="condition type -> status")
    boot_id: str
    allocatable_gpus: int | None = Field(description="None if the node reports none")
    virtual: bool = Field(default=False, description="no machine is behind it: its GPUs are a model's")
    gpu_parts: tuple[str, ...] = Field(
        default=(), description="resources of MIG slices or shares of time that it offers"
    )

    @property
    def lingering_cordon(self) -> Taint | None:
        """The taint of a lifted cordon that the node lifecycle controller has not removed yet."""
        taints = () if self.unschedulable else self.taints
        return next((taint for taint in taints if taint.key == "node.kubernetes.io/unschedulable"), None)
