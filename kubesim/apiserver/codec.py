"""Objects to and from the wire: bodies, lists, metadata-only forms, and the two faces of an Event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import orjson

from kubesim.apiserver.resources import Resource
from kubesim.apiserver.store import Stored

Json = dict[str, Any]

# events.k8s.io/v1 name → core/v1 name; objects are kept in core's form.
_EVENT_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_CORE_EVENT_NAMES = {core: new for new, core in _EVENT_NAMES.items()}


def _is_new_event(resource: Resource) -> bool:
    return resource.group == "events.k8s.io"


def stored_form(resource: Resource, obj: Json) -> Json:
    """A received or patched object in the form it is kept in."""
    return {_EVENT_NAMES.get(key, key): value for key, value in obj.items()} if _is_new_event(resource) else obj


def served_form(resource: Resource, obj: Json) -> Json:
    """A kept object in the resource's own form."""
    if not _is_new_event(resource):
        return obj
    left_out = {name for name in ("reportingComponent", "reportingInstance") if not obj.get(name)}
    return {_CORE_EVENT_NAMES.get(key, key): value for key, value in obj.items() if key not in left_out}


@dataclass(frozen=True)
class FullForm:
    """Objects in full."""

    resource: Resource

    def encode(self, stored: Stored) -> bytes:
        """Return one object as JSON."""
        return self.resource.prefix + self._tail(stored)

    def after_first(self) -> Self:
        """The form of a watch's events after its first."""
        return self

    def _tail(self, stored: Stored) -> bytes:
        if _is_new_event(self.resource):
            return orjson.dumps(served_form(self.resource, stored.obj))[1:]
        return stored.tail

    def encode_list(self, items: list[Stored], meta: Json) -> bytes:
        """A list; its items carry no kind of their own, as the real server's."""
        head = orjson.dumps({"kind": f"{self.resource.kind}List", "apiVersion": self.resource.api_version})[:-1]
        joined = b",".join([b"{" + self._tail(item) for item in items])
        return head + b',"metadata":' + orjson.dumps(meta) + b',"items":[' + joined + b"]}\n"

    def bookmark(self, meta: Json) -> bytes:
        """An otherwise empty object that carries a version."""
        return self.resource.prefix + orjson.dumps({"metadata": meta})[1:]


@dataclass(frozen=True)
class MetadataForm:
    """PartialObjectMetadata: what a metadata informer asks for."""

    resource: Resource
    version: str = "v1"

    def encode(self, stored: Stored) -> bytes:
        """Return one object's metadata as JSON."""
        return self._head("PartialObjectMetadata") + orjson.dumps(stored.obj["metadata"]) + b"}"

    def after_first(self) -> Self:
        """The form of a watch's events after its first."""
        return self

    def encode_list(self, items: list[Stored], meta: Json) -> bytes:
        """A PartialObjectMetadataList."""
        joined = b",".join([self.encode(item) for item in items])
        return self._head("PartialObjectMetadataList") + orjson.dumps(meta) + b',"items":[' + joined + b"]}\n"

    def bookmark(self, meta: Json) -> bytes:
        """A bookmark's object."""
        return self._head("PartialObjectMetadata") + orjson.dumps(meta) + b"}"

    def _head(self, kind: str) -> bytes:
        return f'{{"kind":"{kind}","apiVersion":"meta.k8s.io/{self.version}","metadata":'.encode()
