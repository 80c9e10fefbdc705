"""Kubernetes objects as the tests need them: the fewest fields that mean something."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
STAMP = "2026-01-01T12:00:00Z"


def node(
    name: str, *, labels: dict[str, str] | None = None, gpus: int = 8, ready: str | None = "True", **spec: Any
) -> Any:
    conditions = [] if ready is None else [{"type": "Ready", "status": ready}]
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "labels": labels or {}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)},
            "conditions": conditions,
        },
    }


def pod(name: str, *, gpus: int = 0, phase: str = "Pending", labels: dict[str, str] | None = None, **spec: Any) -> Any:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": STAMP,
            "labels": labels or {},
        },
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}], **spec},
        "status": {"phase": phase},
    }


def ready(obj: Any, status: str = "True") -> Any:
    return {**obj, "status": {**obj["status"], "conditions": [{"type": "Ready", "status": status}]}}


def leaving(obj: Any) -> Any:
    return {**obj, "metadata": {**obj["metadata"], "deletionTimestamp": STAMP}}
