"""Tables: the rows that kubectl asks the server for and prints."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import orjson

from kubesim.apiserver.columns import COLUMNS, DEFAULT
from kubesim.apiserver.resources import Resource
from kubesim.apiserver.store import Stored

Json = dict[str, Any]
INCLUDES = ("Metadata", "Object", "None")


@dataclass(frozen=True)
class Table:
    """Objects as rows; `include` says which object each row carries. A watch sends the columns only with the first."""

    resource: Resource
    include: str = "Metadata"
    version: str = "v1"
    titled: bool = True

    def encode(self, stored: Stored) -> bytes:
        """Return a table of one row."""
        return self._table([stored.obj], {"resourceVersion": str(stored.rv)})

    def encode_list(self, items: list[Stored], meta: Json) -> bytes:
        """Return a table of all objects."""
        return self._table([item.obj for item in items], meta)

    def bookmark(self, meta: Json) -> bytes:
        """Return a bookmark's table: the row of an object that has only a version."""
        return self._table([{"metadata": meta}], {"resourceVersion": meta["resourceVersion"]})

    def after_first(self) -> Self:
        """Return the form of a watch's events after the first one."""
        return replace(self, titled=False)

    def _table(self, objects: list[Json], meta: Json) -> bytes:
        columns = COLUMNS.get(self.resource.qualified, DEFAULT)
        rows = [{"cells": columns.cells(obj), **columns.marks(obj), "object": self._object(obj)} for obj in objects]
        table = {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{self.version}",
            "metadata": meta,
            "columnDefinitions": columns.definitions() if self.titled else None,
            "rows": rows,
        }
        return orjson.dumps(table)

    def _object(self, obj: Json) -> Json | None:
        if self.include == "None":
            return None
        if self.include == "Object":
            return {"kind": self.resource.kind, "apiVersion": self.resource.api_version, **obj}
        partial = {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{self.version}"}
        return {**partial, "metadata": obj["metadata"]}
