"""The field managers that wrote an object, from its managedFields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any


def last_writer(managed_fields: Iterable[Any] | None, *path: str) -> str | None:
    """Return the manager that last wrote a field; None if managedFields name none.

    Args:
        managed_fields: The object's `metadata.managedFields`, as the client's models or as plain JSON.
        path: Keys of fieldsV1, e.g. `f:spec`, `f:unschedulable`.
    """
    writers = [(at, manager) for manager, at, fields in _entries(managed_fields) if has_field(fields, path)]
    return max(writers, key=lambda writer: writer[0])[1] if writers else None


def creator(managed_fields: Iterable[Any] | None) -> str | None:
    """Return the manager of the oldest write in managedFields; None if there is none."""
    writers = [(at, manager) for manager, at, _ in _entries(managed_fields)]
    return min(writers, key=lambda writer: writer[0])[1] if writers else None


def _entries(managed_fields: Iterable[Any] | None) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield manager, time (sortable text) and fields of each entry that names its manager."""
    for entry in managed_fields or ():
        if isinstance(entry, Mapping):
            manager, time, fields = entry.get("manager"), entry.get("time"), entry.get("fieldsV1")
        else:
            manager, time, fields = entry.manager, entry.time, entry.fields_v1
        if manager:
            at = time.isoformat() if isinstance(time, datetime) else str(time or "")
            yield manager, at, fields or {}


def has_field(fields: Mapping[str, Any], path: Iterable[str]) -> bool:
    """Return True if a fieldsV1 has the field at a path of keys, e.g. `f:spec`, `f:unschedulable`."""
    found: Any = fields
    for key in path:
        if not isinstance(found, Mapping) or key not in found:
            return False
        found = found[key]
    return True
