"""An in-process stand-in of the flow-control API: it keeps objects, and answers as the API server does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kubernetes.client.exceptions import ApiException

from gameday.cluster.kubernetes import MANAGER
from gameday_control_plane.flow_control_objects import FlowControlKind


class FakeFlowControl:
    """Takes the place of the official client's FlowcontrolApiserverV1Api."""

    def __init__(self) -> None:
        self.objects: dict[tuple[FlowControlKind, str], dict[str, Any]] = {}
        self.deleted: list[tuple[FlowControlKind, str]] = []
        self.changed: dict[str, str] = {}
        """Managers by the names of objects whose spec they changed."""
        self.stuck: set[str] = set()
        """Names of objects that are still there after a deletion, as one with a finalizer is."""

    def add(self, kind: FlowControlKind, name: str, run: str | None = None) -> None:
        labels = {"gameday.dev/run": run} if run else {}
        self.objects[kind, name] = {"metadata": {"name": name, "labels": labels}}

    def read(self, kind: FlowControlKind, name: str) -> Any:
        if (kind, name) not in self.objects:
            raise ApiException(status=404, reason="Not Found")
        writers = [MANAGER, *([self.changed[name]] if name in self.changed else [])]
        return SimpleNamespace(
            metadata=SimpleNamespace(
                labels=self.objects[kind, name]["metadata"]["labels"],
                generation=len(writers),
                managed_fields=[
                    {"manager": manager, "time": f"2026-01-01T00:00:0{at}Z", "fieldsV1": {"f:spec": {}}}
                    for at, manager in enumerate(writers)
                ],
            )
        )

    def create(self, kind: FlowControlKind, manifest: dict[str, Any]) -> None:
        name = manifest["metadata"]["name"]
        if (kind, name) in self.objects:
            raise ApiException(status=409, reason="AlreadyExists")
        self.objects[kind, name] = manifest

    def delete(self, kind: FlowControlKind, name: str) -> None:
        self.deleted.append((kind, name))
        if (kind, name) not in self.objects:
            raise ApiException(status=404, reason="Not Found")
        if name not in self.stuck:
            del self.objects[kind, name]

    # The official client's names.
    def read_flow_schema(self, name: str) -> Any:
        return self.read(FlowControlKind.SCHEMA, name)

    def read_priority_level_configuration(self, name: str) -> Any:
        return self.read(FlowControlKind.LEVEL, name)

    def create_flow_schema(self, body: dict[str, Any], field_manager: str) -> None:
        self.create(FlowControlKind.SCHEMA, body)

    def create_priority_level_configuration(self, body: dict[str, Any], field_manager: str) -> None:
        self.create(FlowControlKind.LEVEL, body)

    def delete_flow_schema(self, name: str) -> None:
        self.delete(FlowControlKind.SCHEMA, name)

    def delete_priority_level_configuration(self, name: str) -> None:
        self.delete(FlowControlKind.LEVEL, name)

    def list_priority_level_configuration(self) -> Any:
        ours = [
            (name, one["spec"]["limited"]["nominalConcurrencyShares"])
            for (kind, name), one in self.objects.items()
            if kind is FlowControlKind.LEVEL and "spec" in one
        ]
        stock = [("system", 30), ("node-high", 40), ("leader-election", 10), ("workload-high", 40), ("catch-all", 5)]
        levels = [*stock, ("workload-low", 100), ("global-default", 20), *ours]
        return SimpleNamespace(items=[_level(name, shares) for name, shares in levels])


def _level(name: str, shares: int) -> Any:
    limited = SimpleNamespace(nominal_concurrency_shares=shares)
    return SimpleNamespace(metadata=SimpleNamespace(name=name), spec=SimpleNamespace(type="Limited", limited=limited))
