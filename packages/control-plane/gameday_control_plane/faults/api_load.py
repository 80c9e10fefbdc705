"""Steps that are common to faults that load the API server with objects of their own; it holds no fault."""

from __future__ import annotations

from gameday.documents.fields import conflict
from gameday.documents.sizes import format_size
from gameday.errors import HostError
from gameday.host.memory import LOADS_NEED, free_memory
from gameday_control_plane.api_clients.lists import LOAD_LABEL, NAMESPACE
from gameday_control_plane.api_clients.objects import LoadObjects

_MOST_BYTES = 1_200_000_000
"""Most bytes of all objects together: well below the 2 GiB that etcd takes by default."""
SHORT_OF_MEMORY = f"less than {LOADS_NEED:.0%} of this node's memory is free"
"""The reason, in words, why a load ends early."""


def refuse_too_much(objects: int, object_size: int) -> None:
    """Reject the plan if its objects, `object_size` bytes each, are too much for etcd."""
    total = objects * object_size
    if total > _MOST_BYTES:
        raise conflict(
            ("objects",),
            f"{objects} objects of {format_size(object_size)} are {total / 1e9:.2f} GB, and etcd takes "
            f"{_MOST_BYTES / 1e9:g} GB at most here: fewer, or smaller ones",
        )


def refuse_leftovers(objects: LoadObjects, resource: str, load: str) -> None:
    """Raise HostError if objects of this load are there already."""
    if objects.exist():
        raise HostError(
            f"namespace {NAMESPACE} holds objects of another {load}: `gameday reap` undoes the run that left them; "
            f"else kubectl -n {NAMESPACE} delete {resource} -l {LOAD_LABEL}={load}"
        )


def make_counted(objects: LoadObjects, count: int, size: int) -> str:
    """Make the objects and return their resourceVersion. Raises HostError if the server counts a different number."""
    objects.make(count, size)
    counted = objects.count()
    if counted.objects != count:
        raise HostError(f"{count} objects were made, and the API server counts {counted.objects}")
    return counted.resource_version


def check_memory(load: str) -> None:
    """Raise HostError if too little of the machine's memory is free for a load to begin."""
    free = free_memory().share
    if free < LOADS_NEED:
        raise HostError(f"only {free:.0%} of this node's memory is free, and the load {load} needs {LOADS_NEED:.0%}")


def is_memory_short() -> bool:
    """Return True if too little of the machine's memory is free for a load to go on. Raises HostError."""
    return free_memory().share < LOADS_NEED
