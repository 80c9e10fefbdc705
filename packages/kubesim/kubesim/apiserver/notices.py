"""Events about new objects that kubesim does not act on."""

from __future__ import annotations

import time
from typing import Any

from kubesim.apiserver.objects import Objects, Write
from kubesim.apiserver.resources import BY_NAME, Resource, resource_named
from kubesim.apiserver.store import Event, Stored
from kubesim.clock import rfc3339_now
from kubesim.unsimulated import EVENT_REASON, notices

Json = dict[str, Any]
_COMPONENT = "kubesim"


class Notices:
    """Writes a Warning Event for every sentence of `notices` about a new object."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        objects.store.observers.append(self._changed)

    def _changed(self, key: str, event: Event) -> None:
        if event.type != "ADDED":
            return
        resource = BY_NAME[key]
        for sentence in notices(key, event.new.obj):
            namespace = event.new.namespace or "default"
            self._objects.create(
                resource_named("events"), namespace, _event(resource, event.new, sentence), Write(_COMPONENT)
            )


def _event(resource: Resource, stored: Stored, message: str) -> Json:
    about = {"apiVersion": resource.api_version, "kind": resource.kind, "name": stored.name}
    about["uid"] = stored.obj["metadata"]["uid"]
    if stored.namespace:
        about["namespace"] = stored.namespace
    now = rfc3339_now()
    return {
        # As client-go names events: the object and the time in hexadecimal nanoseconds.
        "metadata": {"name": f"{stored.name}.{time.time_ns():x}"},
        "involvedObject": about,
        "type": "Warning",
        "reason": EVENT_REASON,
        "message": message,
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": _COMPONENT},
        "reportingComponent": _COMPONENT,
    }
