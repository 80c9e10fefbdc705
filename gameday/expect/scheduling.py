"""Expectations of the scheduler: where a load's pods land, and a gang that prefers fast GPUs."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from pydantic import Field

from gameday.documents.fields import Bound, DocumentModel
from gameday.expect.base import Expectation
from gameday.values.nodes import NodeRole


class ExpectedScheduling(DocumentModel):
    """Every pod of the load must get a node in time, and no GPU that another pod has."""

    p99_within: Bound = timedelta(seconds=5)
    """Longest time that 99 of 100 pods of any step may wait for a node; the default is Kubernetes' objective for
    starting a pod (SIG Scalability, pod startup latency). Steps of churn have a bound of their own."""
    churn_within: Bound | None = None
    """The same for pods that replace others, which may have to wait for those to end as well. Left out: shown and not
    judged."""
    gpus_per_node: int = Field(default=8, ge=1, le=64)
    """GPUs of each node. If more pods of the load are on a node, a GPU was given out twice."""


class ExpectedPlacement(DocumentModel):
    """A gang of pods of ours with one GPU each, which must all land on nodes of the class `fast`."""

    pods: int = Field(ge=2, le=64)
    """Number of pods in the gang. Take more than there are fast nodes, so that a scheduler that spreads pods and knows
    no classes cannot hit the fast nodes by chance."""
    prefers_fast: bool = True
    """If true, the pods have the node affinity of docs/fleet.md, which prefers nodes of the class `fast`. A negative
    control writes false: its gang is placed as if no node had a class."""
    placed_within: Bound = timedelta(seconds=60)
    """Longest time from the gang's creation until each of its pods has a node."""


class Scheduling(Expectation):
    scheduling: ExpectedScheduling | None = None
    """Places and waiting times of the pods that the fault pods_in_steps creates."""


class Placement(Expectation):
    needs: ClassVar = NodeRole.GPU

    placement: ExpectedPlacement | None = None
    """Placement of a gang of pods on nodes with fast GPUs, by the labels of `gameday fleet` (docs/fleet.md)."""
