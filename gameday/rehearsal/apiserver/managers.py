"""metadata.managedFields: who wrote which field. A game-day reads from it who owns a taint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gameday.rehearsal.apiserver import fieldset
from gameday.rehearsal.apiserver.errors import ApiError

Json = dict[str, Any]
Path = tuple[str, ...]


@dataclass(frozen=True)
class Writer:
    """One write's author: `manager` is ?fieldManager= or the User-Agent up to its first slash."""

    manager: str
    subresource: str
    api_version: str
    time: str


def record_update(old: Json | None, new: Json, writer: Writer) -> None:
    """Stamp `new` (about to be stored, metadata its own dict) with the owners after an Update by `writer`."""
    meta = new["metadata"]
    asked = meta.pop("managedFields", None)
    entries: list[Json] = list((old or {}).get("metadata", {}).get("managedFields") or [])
    if asked in ([], [{}]):
        entries = []
    changed, removed = fieldset.difference(old or {}, new)
    if changed or removed:
        entries = _after_update(entries, changed, removed, writer)
    if entries:
        meta["managedFields"] = entries


def _after_update(entries: list[Json], changed: fieldset.Set, removed: fieldset.Set, writer: Writer) -> list[Json]:
    own: Json | None = None
    result: list[Json] = []
    lost = fieldset.union(changed, removed) if removed else changed
    for entry in entries:
        if _is(entry, writer, "Update"):
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
    return [*result, _entry(writer, "Update", fields)]


def _overlap(left: fieldset.Set, right: fieldset.Set) -> bool:
    """Whether two sets share a node: the cheap test before a subtraction."""
    for element, inner in right.items():
        other = left.get(element)
        if other is not None and (not inner or not other or _overlap(other, inner)):
            return True
    return False


def _is(entry: Json, writer: Writer, operation: str) -> bool:
    return (
        entry.get("manager") == writer.manager
        and entry.get("operation") == operation
        and entry.get("subresource", "") == writer.subresource
        and entry.get("apiVersion") == writer.api_version
    )


def _entry(writer: Writer, operation: str, fields: fieldset.Set) -> Json:
    entry: Json = {
        "manager": writer.manager,
        "operation": operation,
        "apiVersion": writer.api_version,
        "time": writer.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    if writer.subresource:
        entry["subresource"] = writer.subresource
    return entry


def apply(live: Json, config: Json, writer: Writer, force: bool) -> Json:
    """Server-side apply: `config` merged into `live` by ownership; returns a new object.

    Raises ApiError 409 naming every field another manager holds with another value, unless `force`.
    """
    entries: list[Json] = list(live.get("metadata", {}).get("managedFields") or [])
    previous: fieldset.Set = next((entry["fieldsV1"] for entry in entries if _is(entry, writer, "Apply")), {})
    others = [entry for entry in entries if not _is(entry, writer, "Apply")]
    fields = fieldset.of_value(config, (), applied=True)
    others = _settle(live, config, fields, others, force)
    merged: Json = merge(live, config, ())
    gone = fieldset.subtract(previous, fields)
    for entry in others:
        gone = fieldset.subtract(gone, entry["fieldsV1"])
    # Shortest first: an item nobody else has fields in goes as a whole.
    for elements in sorted(fieldset.members(gone), key=len):
        shared = any(fieldset.touches(entry["fieldsV1"], elements) for entry in others)
        if not shared and not fieldset.names_its_item(elements):
            merged = prune(merged, elements, ())
    merged["metadata"] = {**merged.get("metadata", {})}
    kept = next((entry for entry in entries if _is(entry, writer, "Apply") and entry["fieldsV1"] == fields), None)
    own = kept or _entry(writer, "Apply", fields)
    merged["metadata"]["managedFields"] = [*others, own] if fields else others
    return merged


def _settle(live: Json, config: Json, fields: fieldset.Set, others: list[Json], force: bool) -> list[Json]:
    """The other managers' entries after the conflicts are refused, or with `force` taken from them."""
    conflicts: list[tuple[Json, Path]] = []
    result: list[Json] = []
    for entry in others:
        disputed: fieldset.Set = {}
        for elements in fieldset.members(fieldset.intersect(entry["fieldsV1"], fields)):
            if _differs(live, config, elements):
                conflicts.append((entry, elements))
                disputed = fieldset.union(disputed, _as_set(elements))
        rest = fieldset.subtract(entry["fieldsV1"], disputed) if disputed else entry["fieldsV1"]
        if rest:
            result.append({**entry, "fieldsV1": rest})
    if conflicts and not force:
        raise _apply_conflict(conflicts)
    return result


def _differs(live: Json, config: Json, elements: Path) -> bool:
    was_there, was = fieldset.find(live, elements)
    _, wanted = fieldset.find(config, elements)
    if isinstance(was, dict) and isinstance(wanted, dict) and elements[-1].startswith("k:"):
        return False
    return not was_there or was != wanted


def _as_set(elements: Path) -> fieldset.Set:
    result: fieldset.Set = {}
    for element in reversed(elements):
        result = {element: result}
    return result


def _apply_conflict(conflicts: list[tuple[Json, Path]]) -> ApiError:
    causes = []
    for entry, elements in conflicts:
        who = f'conflict with "{entry["manager"]}"'
        if entry.get("subresource"):
            who += f' with subresource "{entry["subresource"]}"'
        if entry["operation"] == "Update":
            who += f" using {entry['apiVersion']}"
        causes.append({"reason": "FieldManagerConflict", "message": who, "field": fieldset.shown(elements)})
    shown = "; ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
    count = "1 conflict" if len(causes) == 1 else f"{len(causes)} conflicts"
    return ApiError(409, "Conflict", f"Apply failed with {count}: {shown}", {"causes": causes})


def merge(live: Any, config: Any, path: Path, *, item: bool = False) -> Any:
    """`config` over `live`: maps and keyed lists merge, everything atomic is replaced."""
    if isinstance(config, dict) and isinstance(live, dict) and (item or fieldset.children(config, path) is not None):
        merged = dict(live)
        for name, value in config.items():
            merged[name] = merge(live[name], value, (*path, name)) if name in live else value
        return merged
    wanted = fieldset.keyed_items(config, path) if path else None
    present = fieldset.keyed_items(live, path) if path else None
    if wanted is None or present is None:
        return config
    joined = {
        key: merge(value, wanted[key], path, item=True) if key in wanted else value for key, value in present.items()
    }
    return list((joined | {key: value for key, value in wanted.items() if key not in joined}).values())


def prune(obj: Any, elements: Path, path: Path) -> Any:
    """`obj` without the field or item at `elements`; containers the removal empties go too."""
    head, rest = elements[0], elements[1:]
    if head.startswith("f:"):
        name = head[2:]
        if not isinstance(obj, dict) or name not in obj:
            return obj
        inner = prune(obj[name], rest, (*path, name)) if rest else None
        without = {key: value for key, value in obj.items() if key != name}
        return {**obj, name: inner} if inner not in (None, {}, []) else without
    items = fieldset.keyed_items(obj, path)
    if items is None or head not in items:
        return obj
    inner = prune(items[head], rest, path) if rest else None
    kept = {key: (inner if key == head else value) for key, value in items.items()}
    return [value for value in kept.values() if value not in (None, {}, [])]
