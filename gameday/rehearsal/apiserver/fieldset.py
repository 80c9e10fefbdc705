"""Sets of fields in FieldsV1 form: nested dicts keyed `f:name`, `k:{…}`, `v:…`, with `.` for the node itself.

`{}` is a member without members below it. Only what managedFields and server-side apply need.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from gameday.rehearsal.apiserver import schema

Set = dict[str, Any]
Path = tuple[str, ...]

# Never owned by anyone (structured-merge-diff's stripped fields).
_UNOWNED = frozenset(
    {"creationTimestamp", "generation", "managedFields", "name", "namespace", "resourceVersion", "uid"}
)
_UNOWNED = _UNOWNED | {"deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"}


def item_key(item: Any, rule: schema.ListRule) -> str | None:
    """`k:{"name":"x"}` of a list item; None when it lacks a key, which makes the list atomic for us."""
    if not isinstance(item, dict):
        return None
    found = {name: item.get(name, default) for name, default in rule.apply_keys}
    if any(value is None for value in found.values()):
        return None
    return "k:" + orjson.dumps(found, option=orjson.OPT_SORT_KEYS).decode()


def value_key(item: Any) -> str:
    """`v:"x"` of a set's member."""
    return "v:" + orjson.dumps(item).decode()


def keyed_items(value: Any, path: Path) -> dict[str, Any] | None:
    """A list's items by path element; None when the list is atomic."""
    if not isinstance(value, list):
        return None
    if schema.is_set(path):
        return {value_key(item): item for item in value}
    rule = schema.list_rule(path)
    if not rule.apply_keys:
        return None
    items = {item_key(item, rule): item for item in value}
    return {key: item for key, item in items.items() if key is not None} if None not in items else None


def children(value: Any, path: Path) -> dict[str, tuple[Any, Path]] | None:
    """What lies below a value, by path element; None for scalars and everything atomic."""
    if isinstance(value, dict):
        if path and schema.is_atomic_map(path):
            return None
        skipped = _UNOWNED if path == ("metadata",) else frozenset()
        return {f"f:{name}": (item, (*path, name)) for name, item in value.items() if name not in skipped}
    items = keyed_items(value, path) if path else None
    if items is None:
        return None
    return {key: (item, path) for key, item in items.items()}


def of_value(value: Any, path: Path, applied: bool) -> Set:
    """Every field of a value. `applied` follows server-side apply (containers are no members of their own)."""
    below = None if isinstance(value, list) and not value else children(value, path)
    if not below:
        return {}
    result: Set = {}
    if not applied and path and (isinstance(value, list) or schema.is_map(path)):
        result["."] = {}
    for element, (item, item_path) in below.items():
        inner = _of_item(item, item_path, applied) if element.startswith("k:") else of_value(item, item_path, applied)
        if inner or element != "f:metadata":
            result[element] = inner
    return result


def _of_item(item: dict[str, Any], path: Path, applied: bool) -> Set:
    """A keyed list's item: a member itself, and a struct whose own path is the list's."""
    result: Set = {".": {}}
    for name, value in item.items():
        result[f"f:{name}"] = of_value(value, (*path, name), applied)
    return result


def difference(old: Any, new: Any, path: Path = (), *, item: bool = False) -> tuple[Set, Set]:
    """(added or changed, removed) between two values; both empty means nothing changed."""
    changed: Set = {}
    removed: Set = {}
    before = _below(old, path, item) or {}
    after = _below(new, path, item) or {}
    for element, (value, value_path) in after.items():
        is_item = element.startswith("k:")
        if element not in before:
            added = _of_item(value, value_path, False) if is_item else of_value(value, value_path, False)
            if added or element != "f:metadata":
                changed[element] = added
            continue
        was = before[element][0]
        if was is value or was == value:
            continue
        if _below(was, value_path, is_item) is None or _below(value, value_path, is_item) is None:
            changed[element] = of_value(value, value_path, False)
            continue
        inner_changed, inner_removed = difference(was, value, value_path, item=is_item)
        if inner_changed:
            changed[element] = inner_changed
        if inner_removed:
            removed[element] = inner_removed
    for element, (value, value_path) in before.items():
        if element not in after:
            removed[element] = with_containers(of_value(value, value_path, False))
    return changed, removed


def _below(value: Any, path: Path, item: bool) -> dict[str, tuple[Any, Path]] | None:
    if item and isinstance(value, dict):
        return {f"f:{name}": (inner, (*path, name)) for name, inner in value.items()}
    return children(value, path)


def with_containers(fields: Set) -> Set:
    """The same set with every inner node a member, so that subtracting it leaves nothing behind."""
    if not fields:
        return {}
    return {".": {}, **{element: with_containers(inner) for element, inner in fields.items() if element != "."}}


def is_member(node: Set) -> bool:
    """Whether the node itself (not only something below it) belongs to the set."""
    return not node or "." in node


def union(left: Set, right: Set) -> Set:
    """Members of either."""
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
    """Members of the first only."""
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


def intersect(left: Set, right: Set) -> Set:
    """Members of both."""
    result: Set = {}
    for element, inner in left.items():
        other = right.get(element)
        if other is None or element == ".":
            continue
        below = intersect(inner, other)
        member = is_member(inner) and is_member(other)
        if below:
            result[element] = {".": {}, **below} if member else below
        elif member:
            result[element] = {}
    return result


def members(fields: Set, prefix: Path = ()) -> Iterator[Path]:
    """The paths of all members, as tuples of path elements."""
    for element, inner in fields.items():
        if element == ".":
            continue
        if is_member(inner):
            yield (*prefix, element)
        yield from members(inner, (*prefix, element))


def touches(fields: Set, elements: Path) -> bool:
    """Whether the set has a member at the path or below it."""
    for element in elements:
        if element not in fields:
            return False
        fields = fields[element]
    return True


def names_its_item(elements: Path) -> bool:
    """Whether the path is a key field of a keyed list's item, without which the item has no identity."""
    return len(elements) > 1 and elements[-2].startswith("k:") and elements[-1][2:] in orjson.loads(elements[-2][2:])


def find(obj: Any, elements: Path) -> tuple[bool, Any]:
    """(present, value) at a path of elements."""
    value = obj
    path: Path = ()
    for element in elements:
        if element.startswith("f:"):
            name = element[2:]
            if not isinstance(value, dict) or name not in value:
                return False, None
            value, path = value[name], (*path, name)
        else:
            items = keyed_items(value, path) or {}
            if element not in items:
                return False, None
            value = items[element]
    return True, value


def shown(elements: Path) -> str:
    """`.status.conditions[type="Ready"].status`."""
    text = ""
    for element in elements:
        if element.startswith("f:"):
            text += "." + element[2:]
        elif element.startswith("k:"):
            keys = orjson.loads(element[2:])
            text += "[" + ",".join(f"{name}={orjson.dumps(value).decode()}" for name, value in keys.items()) + "]"
        else:
            text += f"[={element[2:]}]"
    return text
