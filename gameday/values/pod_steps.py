"""Pods that were created in steps, as their creator's watch saw them."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from gameday.values.api_requests import LoadModel

LOAD = "pods-in-steps"
"""The load's name: the value of its objects' label, and the start of their names."""


class Allocation(StrEnum):
    """The way in which a pod asks for its GPU."""

    DEVICE_PLUGIN = "device-plugin"
    DRA = "dra"


class PodStep(LoadModel):
    """A step: pods created at a steady rate, until all are bound or the patience is over.

    Latencies are seconds from the watch showing a pod to the watch showing it bound; None: none was bound.
    """

    step: int = Field(description="from 1")
    created: int
    bound: int
    took_s: float = Field(description="from the first creation to the last binding")
    p50_s: float | None
    p99_s: float | None


class PodsPlaced(LoadModel):
    """The pods' places at the end, read from the objects and not from the scheduler."""

    wanted: int
    bound: int
    most_on_a_node: int = Field(description="of these pods, each of which asks for one GPU")
    devices_given_twice: int = Field(description="devices that several claims of these pods have; 0 without claims")
