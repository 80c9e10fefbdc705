"""The undos of the control plane's changes: the API canary, and a flow schema with its priority levels."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gameday.cluster.kubernetes import Kubernetes, absent_is_none
from gameday.cluster.pods import PodFollower
from gameday.ledger.entries import ObjectName, PackageUndo, UndoResult, object_prefix
from gameday.ledger.undo import delete_pod
from gameday.values.results import Cleanliness
from gameday_control_plane.api_clients.lists import NAMESPACE
from gameday_control_plane.flow_control_objects import FlowControlApi, FlowControlKind
from gameday_control_plane.values.api_requests import api_canary_lease


class EndApiCanary(PackageUndo):
    """Delete the API canary's pod, and the Lease that remains if the pod was killed."""

    kind: Literal["end-api-canary"] = "end-api-canary"
    pod: ObjectName
    lease: ObjectName

    @property
    def object(self) -> str:
        return f"pod/{self.pod}"

    def foreign_objects(self, run_id: str) -> list[str]:
        foreign_pod = [] if self.pod.startswith(object_prefix(run_id)) else [self.pod]
        return foreign_pod if self.lease == api_canary_lease(run_id) else [*foreign_pod, self.lease]

    def carry_out(self, cluster: Kubernetes, run_id: str, pods: PodFollower) -> UndoResult:
        """Delete the pod, which deletes its Lease if it can; nobody would own a Lease without its pod."""
        deleted = delete_pod(cluster, self.pod, pods)
        if deleted.cleanliness is not Cleanliness.CLEAN:
            return deleted
        with cluster.explained(f"delete lease {self.lease} in {NAMESPACE}"), absent_is_none():
            cluster.coordination.delete_namespaced_lease(self.lease, NAMESPACE)
        return UndoResult(Cleanliness.CLEAN, (*deleted.evidence, f"lease {self.lease} is gone from {NAMESPACE}"))


class DeleteFlowControl(PackageUndo):
    """Delete one of our flow schemas, and then its priority levels.

    Flow schemas name their run themselves, and are checked when they are deleted.
    """

    kind: Literal["delete-flow-control"] = "delete-flow-control"
    schema_name: ObjectName
    levels: tuple[ObjectName, ...] = Field(description="names of the priority levels")

    @property
    def object(self) -> str:
        return f"flowschema/{self.schema_name}"

    def carry_out(self, cluster: Kubernetes, run_id: str, pods: PodFollower) -> UndoResult:
        """Delete the schema before its levels: requests of a schema without its level would be refused."""
        flow_control = FlowControlApi(cluster)
        lines = []
        levels = ((FlowControlKind.LEVEL, level) for level in self.levels)
        for kind, one in ((FlowControlKind.SCHEMA, self.schema_name), *levels):
            owner = flow_control.owner(kind, one)
            if owner is None:
                lines.append(f"{kind} {one} is no longer there")
            elif owner != run_id:
                lines.append(f"{kind} {one} is left alone: it is not this run's any more ({owner or 'no run'} owns it)")
            else:
                flow_control.delete(kind, one)
                if flow_control.owner(kind, one) is not None:
                    return UndoResult(Cleanliness.UNKNOWN, (*lines, f"{kind} {one} is still there"))
                lines.append(f"{kind} {one} deleted")
        return UndoResult(Cleanliness.CLEAN, tuple(lines))
