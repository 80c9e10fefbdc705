"""Objects to and from the wire: bodies, lists, metadata-only forms, and the two faces of an Event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from gameday.rehearsal.apiserver.errors import bad_request
from gameday.rehearsal.apiserver.resources import Resource
from gameday.rehearsal.apiserver.store import Stored

Json = dict[str, Any]

_META_PREFIX = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":'

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


def renamed(resource: Resource, obj: Json) -> Json:
    """A received or patched object in the form it is kept in."""
    return {_EVENT_NAMES.get(key, key): value for key, value in obj.items()} if _is_new_event(resource) else obj


def shown(resource: Resource, obj: Json) -> Json:
    """A kept object in the resource's own form."""
    return {_CORE_EVENT_NAMES.get(key, key): value for key, value in obj.items()} if _is_new_event(resource) else obj


def body(raw: bytes) -> Json:
    """The JSON object in a request body, nulls dropped. Raises ApiError 400."""
    try:
        obj = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the object provided is unrecognized: couldn't parse the body as JSON: {error}") from error
    if not isinstance(obj, dict):
        raise bad_request("the object provided is unrecognized: the body is no JSON object")
    return without_nulls(obj) if b"null" in raw else obj


def without_nulls(value: Any) -> Any:
    """Nulls mean absent to the typed real server."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def check_kind(obj: Json, api_version: str, kind: str) -> None:
    """Take `kind` and `apiVersion` off an object, refusing (400) those of another resource."""
    found_kind, found_version = obj.pop("kind", kind), obj.pop("apiVersion", api_version)
    if (found_kind, found_version) != (kind, api_version):
        raise bad_request(
            f"the API version and kind in the data ({found_version}, {found_kind}) do not match the expected "
            f"({api_version}, {kind})"
        )
    meta = obj.setdefault("metadata", {})
    if not isinstance(meta, dict):
        raise bad_request("metadata must be an object")


@dataclass(frozen=True)
class Whole:
    """Objects in full."""

    resource: Resource

    def one(self, stored: Stored) -> bytes:
        """One object."""
        return self.resource.prefix + self._tail(stored)

    def _tail(self, stored: Stored) -> bytes:
        if _is_new_event(self.resource):
            return orjson.dumps(shown(self.resource, stored.obj))[1:]
        return stored.tail

    def many(self, items: list[Stored], meta: Json) -> bytes:
        """A list; its items carry no kind of their own, as the real server's."""
        head = orjson.dumps({"kind": f"{self.resource.kind}List", "apiVersion": self.resource.api_version})[:-1]
        joined = b",".join([b"{" + self._tail(item) for item in items])
        return head + b',"metadata":' + orjson.dumps(meta) + b',"items":[' + joined + b"]}\n"

    def bookmark(self, meta: Json) -> bytes:
        """An otherwise empty object that carries a version."""
        return self.resource.prefix + orjson.dumps({"metadata": meta})[1:]


@dataclass(frozen=True)
class MetadataOnly:
    """PartialObjectMetadata: what a metadata informer asks for."""

    resource: Resource

    def one(self, stored: Stored) -> bytes:
        """One object's metadata."""
        return _META_PREFIX + orjson.dumps(stored.obj["metadata"]) + b"}"

    def many(self, items: list[Stored], meta: Json) -> bytes:
        """A PartialObjectMetadataList."""
        head = b'{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":'
        return head + orjson.dumps(meta) + b',"items":[' + b",".join([self.one(item) for item in items]) + b"]}\n"

    def bookmark(self, meta: Json) -> bytes:
        """A bookmark's object."""
        return _META_PREFIX + orjson.dumps(meta) + b"}"
