"""Expectations of the scheduler, for faults that create pods."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from gameday.documents.fields import Bound, DocumentModel


class ExpectedScheduling(DocumentModel):
    """Every pod of the load must get a node, in time, and none a GPU that another one has."""

    p99_within: Bound = timedelta(seconds=5)
    """Longest time that 99 of 100 pods of any step may wait for a node; the default is Kubernetes' objective for
    starting a pod (SIG Scalability, pod startup latency). Steps of churn have a bound of their own."""
    churn_within: Bound | None = None
    """The same for pods that replace others: where every GPU is taken they wait for the others' end as well. Left out:
    it is shown and not judged."""
    gpus_per_node: int = Field(default=8, ge=1, le=64)
    """GPUs of each node: more pods of the load on one are a GPU given out twice."""
