"""The places and waiting times of a load's pods."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from gameday.documents.fields import Bound, DocumentModel
from gameday.expect.base import Expectation


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


class Scheduling(Expectation):
    scheduling: ExpectedScheduling | None = None
    """Places and waiting times of the pods that the fault pods_in_steps creates."""
