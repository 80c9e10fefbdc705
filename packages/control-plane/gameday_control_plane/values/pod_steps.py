"""Pods that were created in steps, as their creator's watch saw them."""

from __future__ import annotations

from enum import StrEnum

from pydantic import AwareDatetime, Field

from gameday_control_plane.values.api_requests import LoadModel

LOAD = "pods-in-steps"
"""The load's name: the value of its objects' label, and the start of their names."""


class Allocation(StrEnum):
    """The way in which a pod asks for its GPU."""

    DEVICE_PLUGIN = "device-plugin"
    TOPOLOGY = "topology-aware"
    DRA = "dra"


class PodStep(LoadModel):
    """A step: pods created at a steady rate, until all are bound or the patience is over.

    In a step of churn each pod is created right after another is deleted, and may have to wait for that one's GPU.
    Latencies are seconds from when the watch shows a pod until it shows the pod bound; None if none was bound.
    """

    step: int = Field(description="from 1")
    created: int
    deleted: int = Field(default=0, description="pods that made place for those created: in a step of churn as many")
    bound: int
    took_s: float = Field(description="from the first creation to the last binding")
    p50_s: float | None
    p99_s: float | None
    began_at: AwareDatetime | None = Field(default=None, description="None in game-days before it was noted")
    until: AwareDatetime | None = Field(default=None, description="end of the pause in which the step is measured")


class ZonesPlaced(LoadModel):
    """NUMA zones in the NodeResourceTopology objects, compared with the pods on their nodes."""

    zones: int = Field(description="of the nodes that have pods of the load")
    overcommitted: int = Field(
        description="zones with more GPUs in use than they have, or nodes with pods that want more"
    )
    behind: int = Field(description="nodes with fewer GPUs in use in their object than pods of the load")


class PodsPlaced(LoadModel):
    """The pods' places at the end, read from the objects and not from the scheduler."""

    wanted: int
    bound: int
    most_on_a_node: int = Field(description="of these pods, which ask for one GPU each")
    devices_given_twice: int = Field(description="devices that several claims of these pods have; 0 without claims")
    refused: int = Field(default=0, description="pods that their node's kubelet did not admit")
    zones: ZonesPlaced | None = Field(default=None, description="None if the scheduler knows no zones")
