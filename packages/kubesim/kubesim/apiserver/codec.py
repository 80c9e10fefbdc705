"""The forms of objects in answers: whole, or their metadata alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import orjson

from kubesim.apiserver.resources import Resource
from kubesim.apiserver.store import Stored

Json = dict[str, Any]


@dataclass(frozen=True)
class FullForm:
    """Objects in full."""

    resource: Resource

    def encode(self, stored: Stored) -> bytes:
        """Return one object as JSON."""
        return self.resource.prefix + stored.tail

    def after_first(self) -> Self:
        """Return the form of a watch's events after the first one."""
        return self

    def encode_list(self, items: list[Stored], meta: Json) -> bytes:
        """Return a list; as in the real server, its items have no kind of their own."""
        head = orjson.dumps({"kind": f"{self.resource.kind}List", "apiVersion": self.resource.api_version})[:-1]
        joined = b",".join([b"{" + item.tail for item in items])
        return head + b',"metadata":' + orjson.dumps(meta) + b',"items":[' + joined + b"]}\n"

    def bookmark(self, meta: Json) -> bytes:
        """Return an object that has only a version."""
        return self.resource.prefix + orjson.dumps({"metadata": meta})[1:]


@dataclass(frozen=True)
class MetadataForm:
    """PartialObjectMetadata, which metadata informers ask for."""

    resource: Resource
    version: str = "v1"

    def encode(self, stored: Stored) -> bytes:
        """Return one object's metadata as JSON."""
        return self._head("PartialObjectMetadata") + orjson.dumps(stored.obj["metadata"]) + b"}"

    def after_first(self) -> Self:
        """Return the form of a watch's events after the first one."""
        return self

    def encode_list(self, items: list[Stored], meta: Json) -> bytes:
        """Return a PartialObjectMetadataList."""
        joined = b",".join([self.encode(item) for item in items])
        return self._head("PartialObjectMetadataList") + orjson.dumps(meta) + b',"items":[' + joined + b"]}\n"

    def bookmark(self, meta: Json) -> bytes:
        """Return an object that has only a version."""
        return self._head("PartialObjectMetadata") + orjson.dumps(meta) + b"}"

    def _head(self, kind: str) -> bytes:
        return f'{{"kind":"{kind}","apiVersion":"meta.k8s.io/{self.version}","metadata":'.encode()
