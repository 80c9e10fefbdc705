"""The resources that the scheduler reserves for a pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubesim.client import Object
from kubesim.quantity import amounts

Resources = Mapping[str, int]


def pod_requests(spec: Object) -> dict[str, int]:
    """Add up what a pod asks for: its containers together, or its greediest init step if that is more.

    Restartable init containers (sidecars) keep running, so they count with the containers. A limit without a request
    counts as the request, as by the API server's defaults.
    """
    running = _total(_container_requests(c) for c in spec.get("containers") or ())
    peak: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        request = _container_requests(container)
        if container.get("restartPolicy") == "Always":
            sidecars = _total((sidecars, request))
            peak = _greatest(peak, sidecars)
        else:
            peak = _greatest(peak, _total((sidecars, request)))
    total = _greatest(peak, _total((running, sidecars)))
    return _total((total, amounts(spec.get("overhead")), {"pods": 1}))


def _container_requests(container: Object) -> dict[str, int]:
    resources = container.get("resources") or {}
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _total(parts: Iterable[Resources]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for resource, value in part.items():
            total[resource] = total.get(resource, 0) + value
    return total


def _greatest(left: Resources, right: Resources) -> dict[str, int]:
    return {resource: max(left.get(resource, 0), right.get(resource, 0)) for resource in {*left, *right}}
