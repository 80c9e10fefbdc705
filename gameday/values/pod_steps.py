"""Pods that were created in steps, as their creator's watch saw them."""

from __future__ import annotations

from enum import StrEnum

from pydantic import AwareDatetime, Field

from gameday.values.api_requests import LoadModel

LOAD = "pods-in-steps"
"""The load's name: the value of its objects' label, and the start of their names."""


TOPOLOGY_SCHEDULER = "topology-scheduler"
"""The `schedulerName` of the lab's topology-aware scheduler."""


class Allocation(StrEnum):
    """The way in which a pod asks for its GPU."""

    DEVICE_PLUGIN = "device-plugin"
    TOPOLOGY = "topology-aware"
    DRA = "dra"


class PodStep(LoadModel):
    """A step: pods created at a steady rate, until all are bound or the patience is over.

    In a step of churn each pod is created right after the deletion of another, whose GPU it may have to wait for.
    Latencies are seconds from the watch showing a pod to the watch showing it bound; None: none was bound.
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
    """NUMA zones by the NodeResourceTopology objects, set against the pods on their nodes."""

    zones: int = Field(description="of the nodes that have pods of the load")
    overcommitted: int = Field(description="zones with more GPUs in use than they have, or nodes whose pods want more")
    behind: int = Field(description="nodes whose object has fewer GPUs in use than there are pods of the load")


class PodsPlaced(LoadModel):
    """The pods' places at the end, read from the objects and not from the scheduler."""

    wanted: int
    bound: int
    most_on_a_node: int = Field(description="of these pods, each of which asks for one GPU")
    devices_given_twice: int = Field(description="devices that several claims of these pods have; 0 without claims")
    refused: int = Field(default=0, description="pods that their node's kubelet did not admit")
    zones: ZonesPlaced | None = Field(default=None, description="None where the scheduler knows of no zones")
