"""The GPUs that this container was given, found by each of the ways that clusters have.

The cluster chooses how a device plugin hands a GPU over (docs/sources.md, Device plugin): UUIDs or indices in
NVIDIA_VISIBLE_DEVICES, or CDI, which leaves `void` there. The kubelet's pod-resources API knows them in either case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gameday.errors import HostError
from gameday.host.base import Host
from gameday.text import shown

POD_VARIABLE = "GAMEDAY_POD"
"""The environment variable with the pod's `namespace/name`, as our manifests write it."""
DEVICES_VARIABLE = "NVIDIA_VISIBLE_DEVICES"
_NVML = "NVML"
_UUID = re.compile(r"(GPU|MIG)-[0-9A-Fa-f-]{8,80}")
_INDEX = re.compile(r"[0-9]{1,3}")


@dataclass(frozen=True)
class OwnGpus:
    """The container's GPUs, and the way in which they were found."""

    uuids: tuple[str, ...]
    way: str


def own_gpus(host: Host, environment: Mapping[str, str], asked: int) -> OwnGpus:
    """Return the GPUs of this container.

    Args:
        host: The node.
        environment: The container's environment.
        asked: The number of GPUs that the pod requested; a way that shows more is not trusted.

    Raises:
        HostError: No way shows them; the message has the reason for each way.
    """
    failed = []
    ways: tuple[tuple[str, Callable[[], tuple[str, ...]]], ...] = (
        (DEVICES_VARIABLE, lambda: _by_environment(host, environment.get(DEVICES_VARIABLE, ""))),
        ("the kubelet's pod-resources API", lambda: host.pod_gpus(*_pod(environment))),
        (_NVML, lambda: tuple(gpu.uuid for gpu in host.gpus())),
    )
    for way, look in ways:
        try:
            uuids = look()
        except HostError as error:
            failed.append(f"{way}: {error}")
            continue
        # Shares of one GPU are one UUID. NVML shows all visible GPUs, so only the right number proves that they are its
        # own.
        fewest = asked if way == _NVML else 1
        if fewest <= len(uuids) <= asked and all(map(_UUID.fullmatch, uuids)):
            return OwnGpus(uuids, way)
        failed.append(f"{way} shows {len(uuids)} GPU(s), and the pod asked for {asked}")
    raise HostError("no way says which GPUs this pod holds: " + "; ".join(failed))


def _by_environment(host: Host, value: str) -> tuple[str, ...]:
    """Return the GPUs that the device plugin's strategy `envvar` names by UUID or index. Raises HostError."""
    named = value.split(",") if value else []
    if named and all(map(_UUID.fullmatch, named)):
        return tuple(named)
    if not named or not all(map(_INDEX.fullmatch, named)):
        raise HostError(f"it is {shown(value)}" if value else "it is not set")
    uuids = {str(gpu.index): gpu.uuid for gpu in host.gpus()}
    if unknown := [one for one in named if one not in uuids]:
        raise HostError(f"it names GPU {', '.join(unknown)}, and NVML knows {', '.join(uuids) or 'none'}")
    return tuple(uuids[one] for one in named)


def _pod(environment: Mapping[str, str]) -> tuple[str, str]:
    """Return this pod's namespace and name. Raises HostError."""
    namespace, _, name = environment.get(POD_VARIABLE, "").partition("/")
    if not name:
        raise HostError(f"{POD_VARIABLE} does not name this pod")
    return namespace, name
