"""Kubernetes resource quantities as integers, and what a pod asks for in total."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from kubesim.client import Object
from kubesim.quantity import value_of

Resources = Mapping[str, int]


def amount(resource: str, text: object) -> int:
    """A quantity in the resource's smallest counted unit: millicores for cpu, bytes or pieces otherwise.

    Raises ValueError, naming what is not one.
    """
    try:
        return math.ceil(value_of(str(text)) * (1000 if resource == "cpu" else 1))
    except ValueError:
        raise ValueError(f"{text!r} is not a Kubernetes quantity") from None


def amounts(quantities: Mapping[str, object] | None) -> dict[str, int]:
    return {resource: amount(resource, text) for resource, text in (quantities or {}).items()}


def pod_requests(spec: Object) -> dict[str, int]:
    """What the scheduler reserves for a pod: its containers together, or its greediest init step if that is more.

    Restartable init containers (sidecars) run on, so they count with the containers. A limit without a request is
    the request, as the API server's defaulting has it.
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
