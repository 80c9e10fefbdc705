"""The health that a kubelet reports of a pod's devices, in the pod's status (KEP-4680, ResourceHealthStatus).

A DRA driver or a device plugin tells the kubelet that a device is unhealthy, and the kubelet writes it into the status
of every pod that has the device. A device that no pod has is in no status (docs/sources.md, Health of a pod's devices).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Literal

from pydantic import Field

from gameday.documents.fields import Bound
from gameday.expect.base import Expectation, PodSignal
from gameday.values.nodes import NodeRole


class ExpectedResourceHealth(PodSignal):
    """A report in the status of a pod on the target that one of the pod's devices is not healthy."""

    check: ClassVar = "resource-unhealthy"
    ends_check: ClassVar = "resource-healthy"
    ends_by: ClassVar = "clears_within"

    resource: str | None = Field(default=None, min_length=1, max_length=317)
    """Name of the resource in the pod's status: `claim:NAME` or `claim:NAME/REQUEST` for a claim (DRA), else as in the
    pod's requests, such as `nvidia.com/gpu`; null: any."""
    health: Literal["Unhealthy", "Unknown"] = "Unhealthy"
    """Health that must be reported. `Unknown`: the driver or plugin is gone."""
    within: Bound
    """Longest time from the fault going in to the report."""
    clears_within: Bound | None = timedelta(minutes=5)
    """Longest time from the end of the remediation until no pod of the node reports it; null: a person repairs it."""

    def __str__(self) -> str:
        return f"{self.resource or 'a resource'} {self.health} in a pod's status"

    @property
    def wanted(self) -> str:
        return self.health

    def comes(self, node: str) -> str:
        return f"A pod of {node} reports {self.resource or 'a resource'} as {self.health}"

    def ends(self, node: str) -> str:
        return f"No pod of {node} reports {self.resource or 'a resource'} as {self.health} after remediation"

    def signs_of_pods(self, pods: Sequence[Any]) -> Mapping[str, str]:
        reported = (one for pod in pods for one in _reported(pod))
        return {place: health for name, place, health in reported if self.resource in (None, name)}


def _reported(pod: Any) -> Iterator[tuple[str, str, str]]:
    """Yield each device of a pod (V1Pod): its resource's name, the place of the report, and the health."""
    for container in (pod.status and pod.status.container_statuses) or ():
        for resource in container.allocated_resources_status or ():
            for device in resource.resources or ():
                where = f"{pod.metadata.namespace}/{pod.metadata.name}, {container.name}, {resource.name}"
                yield resource.name, f"{where}: {device.resource_id}", device.health or "Unknown"


class ResourceHealth(Expectation):
    order: ClassVar = 57
    needs: ClassVar = NodeRole.GPU

    resource_health: ExpectedResourceHealth | None = None
    """A kubelet must report in a pod's status that one of the pod's devices is not healthy."""
