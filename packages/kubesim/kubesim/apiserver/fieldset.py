"""Sets of fields in FieldsV1 form: nested dicts keyed `f:name`, `k:{…}`, `v:…`, with `.` for the node itself.

`{}` is a member without members below it. Only what managedFields need is here.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import orjson

from kubesim.apiserver.resources import Resource
from kubesim.apiserver.typed import Shape, Struct, shape_of

Json = dict[str, Any]
Set = dict[str, Any]

# Fields that no manager owns (structured-merge-diff's stripped fields).
_UNOWNED = frozenset(
    {"creationTimestamp", "generation", "managedFields", "name", "namespace", "resourceVersion", "uid"}
)
_UNOWNED = _UNOWNED | {"deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"}


@cache
def root_of(resource: Resource) -> Shape:
    """Return the shape of a resource's objects, without the fields that no manager can own."""
    whole = shape_of(resource.api_version, resource.kind)
    assert whole.struct is not None
    metadata = whole.struct.fields["metadata"]
    assert metadata.struct is not None
    fields = {name: shape for name, shape in metadata.struct.fields.items() if name not in _UNOWNED}
    ours = _struct(fields)
    ours.is_always_written = True
    return _struct({**whole.struct.fields, "metadata": ours})


def _struct(fields: dict[str, Shape]) -> Shape:
    shape = Shape("struct")
    shape.struct = Struct("")
    shape.struct.fields = fields
    shape.struct.filled = tuple((name, field) for name, field in fields.items() if field.is_always_written)
    return shape


@cache
def empty_object(resource: Resource) -> Any:
    """Return an object of the resource with only the fields that are always there."""
    return root_of(resource).empty()


def item_key(item: Any, shape: Shape) -> str | None:
    """Return `k:{"name":"x"}` for a list item; None if it lacks a key, which makes the list atomic for us."""
    if not isinstance(item, dict):
        return None
    found = {name: item.get(name, default) for name, default in shape.keys}
    if any(value is None for value in found.values()):
        return None
    return "k:" + orjson.dumps(found, option=orjson.OPT_SORT_KEYS).decode()


def value_key(item: Any) -> str:
    """Return `v:"x"` for a set's member."""
    return "v:" + orjson.dumps(item).decode()


def keyed_items(value: Any, shape: Shape) -> dict[str, Any] | None:
    """Return a list's items by path element; None if the list is atomic."""
    if not isinstance(value, list):
        return None
    if shape.is_set:
        return {value_key(item): item for item in value}
    if not shape.keys:
        return None
    items = {item_key(item, shape): item for item in value}
    return {key: item for key, item in items.items() if key is not None} if None not in items else None


def children(value: Any, shape: Shape) -> dict[str, tuple[Any, Shape]] | None:
    """Return the values below a value, by path element; None for scalars and everything atomic."""
    if shape.atomic:
        return None
    if isinstance(value, dict):
        if shape.struct is not None:
            fields = shape.struct.fields
            return {f"f:{name}": (item, fields[name]) for name, item in value.items() if name in fields}
        return {f"f:{name}": (item, shape.items) for name, item in value.items()}
    items = keyed_items(value, shape)
    if items is None:
        return None
    return {key: (item, shape.items) for key, item in items.items()}


def fields_of(value: Any, shape: Shape) -> Set:
    """Return every field of a value, including the value itself."""
    below = None if isinstance(value, list) and not value else children(value, shape)
    if not below:
        return {}
    result: Set = {".": {}}
    for element, (item, inside) in below.items():
        inner = _member(element, item, inside)
        if inner or element != "f:metadata":
            result[element] = inner
    return result


def _member(element: str, item: Any, shape: Shape) -> Set:
    """Return the set of one child; a keyed list's item is always a member itself."""
    inner = fields_of(item, shape)
    return {".": {}, **inner} if inner and element.startswith("k:") else inner


def difference(old: Any, new: Any, shape: Shape) -> tuple[Set, Set]:
    """Return (added or changed, removed) between two values; both are empty if nothing changed."""
    changed: Set = {}
    removed: Set = {}
    if isinstance(old, dict) and isinstance(new, dict):
        # A shortcut, because most writes leave most of an object as it was.
        old, new = _differing_members(old, new), _differing_members(new, old)
    before = children(old, shape) or {}
    after = children(new, shape) or {}
    for element, (value, inside) in after.items():
        if element not in before:
            added = _member(element, value, inside)
            if added or element != "f:metadata":
                changed[element] = added
            continue
        was = before[element][0]
        if was is value or was == value:
            continue
        if was is None:
            was = [] if isinstance(value, list) else {}
        if children(was, inside) is None or children(value, inside) is None:
            changed[element] = fields_of(value, inside)
            continue
        _note(element, difference(was, value, inside), changed, removed)
    for element, (value, inside) in before.items():
        if element not in after:
            removed[element] = with_containers(fields_of(value, inside))
    return changed, removed


def _differing_members(one: Json, other: Json) -> Json:
    """Return the members that the other one lacks or has with another value."""
    return {name: value for name, value in one.items() if name not in other or other[name] != value}


def _note(element: str, found: tuple[Set, Set], changed: Set, removed: Set) -> None:
    for inner, into in zip(found, (changed, removed), strict=True):
        if inner:
            into[element] = inner


def with_containers(fields: Set) -> Set:
    """Return the same set with every inner node as a member, so that subtracting it leaves nothing behind."""
    if not fields:
        return {}
    return {".": {}, **{element: with_containers(inner) for element, inner in fields.items() if element != "."}}


def is_member(node: Set) -> bool:
    """Return True if the node itself, and not only something below it, belongs to the set."""
    return not node or "." in node


def union(left: Set, right: Set) -> Set:
    """Return the members of either."""
    if not left or not right:
        return left or right
    merged = dict(left)
    for element, inner in right.items():
        merged[element] = _join(merged[element], inner) if element in merged else inner
    return merged


def _join(left: Set, right: Set) -> Set:
    joined = union(left, right)
    if joined and (is_member(left) or is_member(right)):
        return {".": {}, **joined}
    return joined


def subtract(left: Set, right: Set) -> Set:
    """Return the members of the first only."""
    result: Set = {}
    for element, inner in left.items():
        other = right.get(element)
        if other is None:
            result[element] = inner
            continue
        if element == ".":
            continue
        below = subtract({k: v for k, v in inner.items() if k != "."}, {k: v for k, v in other.items() if k != "."})
        stays = is_member(inner) and not is_member(other)
        if below:
            result[element] = {".": {}, **below} if stays else below
        elif stays:
            result[element] = {}
    return result
