"""Kubernetes resource quantities as integers, and what a pod asks for in total."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from gameday.rehearsal.apiclient import Object

# apimachinery's resource.Quantity suffixes.
_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}

Resources = Mapping[str, int]


@lru_cache(maxsize=4096)
def parse_quantity(text: str) -> Decimal:
    """The number a quantity such as `500m`, `16Gi` or `1e3` stands for. Raises ValueError."""
    for length in (2, 1):
        factor = _SUFFIXES.get(text[-length:])
        if factor is not None and len(text) > length:
            return parse_quantity(text[:-length]) * factor
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a Kubernetes quantity") from None
    if not value.is_finite():
        raise ValueError(f"{text!r} is not a Kubernetes quantity")
    return value


def amount(resource: str, text: object) -> int:
    """A quantity in the resource's smallest counted unit: millicores for cpu, bytes or pieces otherwise."""
    return math.ceil(parse_quantity(str(text)) * (1000 if resource == "cpu" else 1))


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
