"""A pod that the kubelet's Topology Manager must reject, because no NUMA node has what it asks for."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, model_validator

from gameday.documents.fields import DocumentModel, conflict
from gameday.expect.base import Expectation
from gameday.values.nodes import NodeRole


class MisalignedPod(DocumentModel):
    """A pod that asks for more than any single NUMA node of the target can give."""

    gpus: int = Field(default=1, ge=1, le=1024)
    """GPUs that the pod asks for; if fewer are free on the target, no pod is sent."""
    cpus: int = Field(default=1, ge=1, le=65_536)
    """Whole CPUs that the pod asks for; its requests equal its limits (QoS Guaranteed)."""

    @model_validator(mode="after")
    def _require_more_than_one_of_each(self) -> MisalignedPod:
        if self.gpus == self.cpus == 1:
            raise conflict((), "1 GPU and 1 CPU come from one NUMA node: ask for more of one than any NUMA node has")
        return self

    @property
    def size(self) -> str:
        """The pod's size, as people read it."""
        return f"{self.gpus} GPU(s) and {self.cpus} CPU(s)"


class TopologyManagerRejects(Expectation):
    needs: ClassVar = NodeRole.GPU

    topology_manager_rejects: MisalignedPod | None = None
    """Pod that the target's kubelet must reject at admission with TopologyAffinityError while a `numa` fault is in, as
    topologyManagerPolicy single-numa-node does."""
