"""metadata.managedFields: who wrote which field. The basis of server-side apply."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import orjson

from kubesim.apiserver import fieldset
from kubesim.apiserver.errors import StatusError
from kubesim.apiserver.typed import Shape

Json = dict[str, Any]
Path = tuple[str, ...]


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
    """Stamp `new` (metadata its own dict) with the owners after an Update of `old` by `writer`.

    What `new` says of its owners is where it starts from, so that clients can correct it; else what `old` says.
    """
    meta = new["metadata"]
    entries: list[Json] = list(meta.pop("managedFields", None) or old["metadata"].get("managedFields") or [])
    if not entries and "uid" in old["metadata"]:
        # Owners that were never recorded, or were wiped, are recorded only from the first apply on.
        return
    changed, removed = fieldset.difference(old, new, writer.shape)
    if changed or removed:
        entries = sorted_entries(_after_update(entries, changed, removed, writer))
    if entries:
        meta["managedFields"] = entries


def sorted_entries(entries: list[Json]) -> list[Json]:
    """Applied ones first, then by time, manager, version and subresource, as the real server keeps them."""
    parts = ("operation", "time", "manager", "apiVersion", "subresource")
    return sorted(entries, key=lambda entry: tuple(entry.get(part, "") for part in parts))


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
    """Return whether two sets share a node: the cheap test before a subtraction."""
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
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    if writer.subresource != "scale":
        entry["time"] = writer.time
    if writer.subresource:
        entry["subresource"] = writer.subresource
    return entry


LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def apply(live: Json, config: Json, writer: Writer, force: bool) -> Json:
    """Server-side apply: `config` merged into `live` by ownership; returns a new object.

    Raises StatusError 409 naming every field another manager holds with another value, unless `force`.
    """
    last = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED) if writer.manager == "kubectl" else None
    if last is None:
        return _applied(live, config, writer, force, {})
    # A client may go on from client-side to server-side apply: the fields that it owns already are no conflict.
    merged = _applied(live, config, writer, force, _applied_last(live, last, writer.shape))
    text = orjson.dumps(_with_kind(config, last), option=orjson.OPT_SORT_KEYS).decode() + "\n"
    merged["metadata"]["annotations"] = {**merged["metadata"]["annotations"], LAST_APPLIED: text}
    return merged


def _with_kind(config: Json, last: str) -> Json:
    before = orjson.loads(last)
    return {"apiVersion": before.get("apiVersion"), "kind": before.get("kind"), **config}


def _applied_last(live: Json, last: str, shape: Shape) -> fieldset.Set:
    """The fields that a client's apply set and nobody has changed since."""
    try:
        before = orjson.loads(last)
    except orjson.JSONDecodeError:
        return {}
    allowed: fieldset.Set = {}
    for elements in fieldset.members(fieldset.fields_of(before, shape, applied=True)):
        if not _differs(live, before, elements, shape):
            allowed = fieldset.union(allowed, _as_set(elements))
    return allowed


def _applied(live: Json, config: Json, writer: Writer, force: bool, allowed: fieldset.Set) -> Json:
    """Apply as `apply` does; fields in `allowed` are taken over without a conflict."""
    entries: list[Json] = list(live["metadata"].get("managedFields") or [])
    if not entries and "uid" in live["metadata"]:
        entries = [_before_first_apply(live, writer)]
    previous: fieldset.Set = next((entry["fieldsV1"] for entry in entries if _is(entry, writer, "Apply")), {})
    others = [entry for entry in entries if not _is(entry, writer, "Apply")]
    fields = fieldset.fields_of(config, writer.shape, applied=True)
    others = _without_disputed(live, config, fields, others, force, writer.shape, allowed)
    merged: Json = merge(live, config, writer.shape)
    gone = fieldset.subtract(previous, fields)
    for entry in others:
        gone = fieldset.subtract(gone, entry["fieldsV1"])
    # Shortest first: an item nobody else has fields in goes as a whole.
    for elements in sorted(fieldset.members(gone), key=len):
        shared = any(fieldset.has_member_below(entry["fieldsV1"], elements) for entry in others)
        if not shared and not fieldset.is_key_field(elements):
            merged = prune(merged, elements, writer.shape)
    merged["metadata"] = {**merged.get("metadata", {})}
    kept = next((entry for entry in entries if _is(entry, writer, "Apply") and entry["fieldsV1"] == fields), None)
    own = kept or _entry(writer, "Apply", fields)
    merged["metadata"]["managedFields"] = sorted_entries([*others, own]) if fields else others
    return merged


def _before_first_apply(live: Json, writer: Writer) -> Json:
    """Everything in an object whose owners were not written down belongs to this manager."""
    fields, _ = fieldset.difference(writer.shape.empty(), live, writer.shape)
    ours = {part: inner for part, inner in fields.items() if (part == "f:status") == (writer.subresource == "status")}
    return _entry(replace(writer, manager="before-first-apply"), "Update", ours)


def _without_disputed(
    live: Json,
    config: Json,
    fields: fieldset.Set,
    others: list[Json],
    force: bool,
    shape: Shape,
    allowed: fieldset.Set,
) -> list[Json]:
    """The other managers' entries after the conflicts are refused, or with `force` taken from them."""
    conflicts: list[tuple[Json, Path]] = []
    result: list[Json] = []
    for entry in others:
        disputed: fieldset.Set = {}
        for elements in fieldset.members(fieldset.intersect(entry["fieldsV1"], fields)):
            if _differs(live, config, elements, shape):
                if not fieldset.has_member_below(allowed, elements):
                    conflicts.append((entry, elements))
                disputed = fieldset.union(disputed, _as_set(elements))
        rest = fieldset.subtract(entry["fieldsV1"], disputed) if disputed else entry["fieldsV1"]
        if rest:
            result.append({**entry, "fieldsV1": rest})
    if conflicts and not force:
        raise _apply_conflict(conflicts)
    return result


def _differs(live: Json, config: Json, elements: Path, shape: Shape) -> bool:
    was_there, was = fieldset.find(live, elements, shape)
    _, wanted = fieldset.find(config, elements, shape)
    if not was_there:
        return True
    at = fieldset.shape_at(elements, shape)
    if fieldset.children(was, at) is not None and fieldset.children(wanted, at) is not None:
        return False  # what lies inside is looked at by itself
    return bool(was != wanted)


def _as_set(elements: Path) -> fieldset.Set:
    result: fieldset.Set = {}
    for element in reversed(elements):
        result = {element: result}
    return result


def _apply_conflict(conflicts: list[tuple[Json, Path]]) -> StatusError:
    found = sorted((_manager_text(entry), fieldset.path_text(elements)) for entry, elements in conflicts)
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": field} for who, field in found
    ]
    if len(found) == 1:
        who, field = found[0]
        message = f"Apply failed with 1 conflict: conflict with {who}: {field}"
    else:
        by_manager = {who: [field for other, field in found if other == who] for who, _ in found}
        texts = [f"conflicts with {who}:\n- " + "\n- ".join(fields) for who, fields in by_manager.items()]
        message = f"Apply failed with {len(found)} conflicts: " + "\n".join(texts)
    return StatusError(409, "Conflict", message, {"causes": causes})


def _manager_text(entry: Json) -> str:
    who = f'"{entry["manager"]}"'
    if entry.get("subresource"):
        who += f' with subresource "{entry["subresource"]}"'
    return f"{who} using {entry['apiVersion']}" if entry["operation"] == "Update" else who


def merge(live: Any, config: Any, shape: Shape) -> Any:
    """`config` over `live`: maps and keyed lists merge, everything atomic is replaced."""
    if isinstance(config, dict) and isinstance(live, dict) and not shape.atomic:
        merged = dict(live)
        for name, value in config.items():
            merged[name] = merge(live[name], value, shape.below(name)) if name in live else value
        return merged
    wanted, present = fieldset.keyed_items(config, shape), fieldset.keyed_items(live, shape)
    if wanted is None or present is None:
        return config
    both = {key: merge(value, wanted[key], shape.items) for key, value in present.items() if key in wanted}
    return [({**present, **wanted} | both)[key] for key in _merged_order([*present], [*wanted])]


def _merged_order(present: list[str], wanted: list[str]) -> list[str]:
    """The keys of both lists: the wanted ones in their order, the others where they stood among them."""
    result: list[str] = []
    left, right = list(present), list(wanted)
    shared = [key for key in wanted if key in present]
    while left or right:
        if left and (left[0] not in wanted or (right and left[0] == right[0])):
            key = left.pop(0)
        elif left and left[0] in (*result, *shared[1:]):
            # The item is in the result already, or follows with the wanted ones.
            left.pop(0)
            continue
        else:
            key = right[0] if right else left.pop(0)
        result.append(key)
        if right and right[0] == key:
            right.pop(0)
        if shared and shared[0] == key:
            shared.pop(0)
    return result


def prune(obj: Any, elements: Path, shape: Shape) -> Any:
    """`obj` without the field or item at `elements`; containers the removal empties go too."""
    head, rest = elements[0], elements[1:]
    if head.startswith("f:"):
        name = head[2:]
        if not isinstance(obj, dict) or name not in obj:
            return obj
        inner = prune(obj[name], rest, shape.below(name)) if rest else None
        without = {key: value for key, value in obj.items() if key != name}
        return {**obj, name: inner} if inner not in (None, {}, []) else without
    items = fieldset.keyed_items(obj, shape)
    if items is None or head not in items:
        return obj
    inner = prune(items[head], rest, shape.items) if rest else None
    kept = {key: (inner if key == head else value) for key, value in items.items()}
    return [value for value in kept.values() if value not in (None, {}, [])]
