"""metadata.managedFields: who wrote which field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubesim.apiserver import fieldset
from kubesim.apiserver.typed import Shape

Json = dict[str, Any]


@dataclass(frozen=True)
class Writer:
    """A write's author: `manager` is ?fieldManager= or the User-Agent up to its first slash."""

    manager: str
    subresource: str
    api_version: str
    time: str
    shape: Shape
    """The shape of the objects: `fieldset.root_of` their resource."""


def record_update(old: Json, new: Json, writer: Writer) -> None:
    """Write the owners after an Update of `old` by `writer` into `new`, which must have a metadata dict of its own.

    It starts from the owners that `new` names, so that clients can correct them, else from those of `old`.
    """
    meta = new["metadata"]
    entries: list[Json] = list(meta.pop("managedFields", None) or old["metadata"].get("managedFields") or [])
    if not entries and "uid" in old["metadata"]:
        # If the owners were wiped, none are recorded, as on the real server before a first apply.
        return
    changed, removed = fieldset.difference(old, new, writer.shape)
    if changed or removed:
        entries = _sorted(_after_update(entries, changed, removed, writer))
    if entries:
        meta["managedFields"] = entries


def _sorted(entries: list[Json]) -> list[Json]:
    """Return the entries by time, manager, version and subresource, as the real server keeps them."""
    parts = ("time", "manager", "apiVersion", "subresource")
    return sorted(entries, key=lambda entry: tuple(entry.get(part, "") for part in parts))


def _after_update(entries: list[Json], changed: fieldset.Set, removed: fieldset.Set, writer: Writer) -> list[Json]:
    own: Json | None = None
    result: list[Json] = []
    lost = fieldset.union(changed, removed) if removed else changed
    for entry in entries:
        if _is(entry, writer):
            own = entry
            continue
        rest = fieldset.subtract(entry["fieldsV1"], lost) if _overlap(entry["fieldsV1"], lost) else entry["fieldsV1"]
        if rest is entry["fieldsV1"]:
            result.append(entry)
        elif rest:
            result.append({**entry, "fieldsV1": rest})
    fields = fieldset.subtract(own["fieldsV1"], removed) if own and removed else (own["fieldsV1"] if own else {})
    fields = fieldset.union(fields, changed)
    if not fields:
        return result
    if own is not None and not changed:
        return [*result, {**own, "fieldsV1": fields}]
    return [*result, _entry(writer, fields)]


def _overlap(left: fieldset.Set, right: fieldset.Set) -> bool:
    """Return True if two sets share a node: a cheap test before a subtraction."""
    for element, inner in right.items():
        other = left.get(element)
        if other is not None and (not inner or not other or _overlap(other, inner)):
            return True
    return False


def _is(entry: Json, writer: Writer) -> bool:
    return (
        entry.get("manager") == writer.manager
        and entry.get("operation") == "Update"
        and entry.get("subresource", "") == writer.subresource
        and entry.get("apiVersion") == writer.api_version
    )


def _entry(writer: Writer, fields: fieldset.Set) -> Json:
    entry: Json = {
        "manager": writer.manager,
        "operation": "Update",
        "apiVersion": writer.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        "time": writer.time,
    }
    if writer.subresource:
        entry["subresource"] = writer.subresource
    return entry
