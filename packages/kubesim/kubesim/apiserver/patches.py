"""JSON patch, JSON merge patch and strategic merge patch, with the real server's quirks.

All return new objects and leave their input alone; the result shares the parts that the patch does not touch.
"""

from __future__ import annotations

from typing import Any

import jsonpatch
import orjson

from kubesim.apiserver.errors import StatusError, bad_request
from kubesim.apiserver.typed import Shape

Json = dict[str, Any]
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"


def apply_patch(kind: str, target: Json, patch: Any, shape: Shape) -> Json:
    """Return the target as changed by a patch. Raises StatusError 400, 422 or 500."""
    if kind == JSON_PATCH:
        return json_patch(target, patch)
    changed: Json = merge_patch(target, patch) if kind == MERGE_PATCH else strategic_merge(target, patch, shape)
    return changed


# JSON patch ----------------------------------------------------------------------------------------------------


def json_patch(target: Json, operations: list[Any]) -> Json:
    """Apply a patch of RFC 6902, except that `replace` adds an object's member that is not there.

    Raises:
        StatusError: 400 for a malformed patch, 422 for one that does not apply.
    """
    document: Any = orjson.loads(orjson.dumps(target))
    if not all(isinstance(operation, dict) for operation in operations):
        raise bad_request("an operation of a JSON patch has to be a JSON object")
    try:
        for operation in operations:
            document = _operated(document, operation)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        # The real server does not name the operation either.
        message = "the server rejected our request due to an error in our request"
        raise StatusError(422, "Invalid", message, {}) from error
    return document if isinstance(document, dict) else {}


def _operated(document: Any, operation: Json) -> Any:
    """Carry out one operation; as in Go's library, a missing value or member counts as null."""
    operation = {"value": None, **operation}
    op, path = operation.get("op"), operation.get("path")
    if op in ("replace", "test") and isinstance(path, str):
        pointer = jsonpatch.JsonPointer(path)
        if op == "test" and operation["value"] is None and pointer.resolve(document, None) is None:
            return document
        if op == "replace" and isinstance(pointer.to_last(document)[0], dict):
            operation["op"] = "add"
    return jsonpatch.JsonPatch([operation]).apply(document, in_place=True)


# Merge patch ---------------------------------------------------------------------------------------------------


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


# Strategic merge patch -----------------------------------------------------------------------------------------


def strategic_merge(target: Json, patch: Json, shape: Shape) -> Json:
    """Merge a patch into the target by the merge keys of its shape.

    Raises:
        StatusError: 400 or 500 for a patch that makes no sense.
    """
    return _merge_map(target, patch, shape)


def _failed(message: str) -> StatusError:
    return StatusError(500, "", message)


def _merge_map(target: Json, patch: Json, shape: Shape) -> Json:
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if "$patch" in patch:
        raise _failed(f"unknown patch type: {go_syntax(directive)} in map: {go_syntax(patch)}")
    merged = _retained(target, patch) if "$retainKeys" in patch else dict(target)
    ordered = {key[len(_ORDER) :]: value for key, value in patch.items() if key.startswith(_ORDER)}
    for field, order in ordered.items():
        _merge_ordered(merged, patch, field, order, shape.below(field))
    for key, value in patch.items():
        if key.startswith(_DELETE):
            field = key[len(_DELETE) :]
            if field in merged:
                merged[field] = [item for item in merged[field] if item not in value]
        elif key not in ordered and not key.startswith("$"):
            _merge_field(merged, key, value, shape.below(key))
    return merged


def _retained(target: Json, patch: Json) -> Json:
    kept = patch["$retainKeys"]
    stray = [key for key, value in patch.items() if value is not None and not key.startswith("$") and key not in kept]
    if stray:
        raise bad_request("invalid patch format of retainKeys")
    return {key: value for key, value in target.items() if key in kept}


def _merge_field(merged: Json, key: str, value: Any, shape: Shape) -> None:
    if value is None:
        merged.pop(key, None)
    elif key not in merged:
        merged[key] = _without_directives(value)
    elif isinstance(value, dict) and isinstance(merged[key], dict):
        merged[key] = _merge_map(merged[key], value, shape)
    elif isinstance(value, list) and isinstance(merged[key], list):
        merged[key] = _merge_list(merged[key], value, shape)
    else:
        merged[key] = value


def _merge_list(current: list[Any], patch: list[Any], shape: Shape) -> list[Any]:
    if not shape.merges:
        return patch
    if not current and not patch:
        return current
    kinds = {isinstance(item, dict) for item in (*current, *patch)}
    if len(kinds) > 1:
        raise _failed(f"list element types are not identical: {go_syntax([current, patch])}")
    if kinds == {False}:
        merged = list(dict.fromkeys([*current, *patch]))
        return _ordered(merged, patch, current, "")
    key = shape.merge_key
    rest, plain, replaced = _directives(current, patch, key)
    if replaced:
        return plain
    merged = list(rest)
    for item in plain:
        index = next((at for at, old in enumerate(merged) if old.get(key) == item[key]), None)
        if index is None:
            merged.append(_without_directives(item))
        else:
            merged[index] = _merge_map(merged[index], item, shape.items)
    return _ordered(merged, plain, current, key)


def _directives(current: list[Json], patch: list[Json], key: str) -> tuple[list[Json], list[Json], bool]:
    """Return (items that the patch's deletions leave, the patch's other items, True if these replace everything)."""
    plain: list[Json] = []
    replaced = False
    for item in patch:
        directive = item.get("$patch")
        if directive == "replace":
            replaced = True
        elif directive == "merge":
            raise _failed("merging lists cannot yet be specified in the patch")
        elif directive is not None and directive != "delete":
            raise _failed(f"unknown patch type: {go_syntax(directive)} in map: {go_syntax(item)}")
        elif key not in item:
            raise _failed(f"map: {go_syntax(item)} does not contain declared merge key: {key}")
        elif directive == "delete":
            current = [old for old in current if old.get(key) != item[key]]
        else:
            plain.append(item)
    return current, plain, replaced


def _merge_ordered(merged: Json, patch: Json, field: str, order: list[Any], shape: Shape) -> None:
    """Merge a list and put it into the patch's order; items that only the server has stay in place."""
    current, changes = merged.get(field), patch.get(field)
    if current is None and changes is None:
        return
    if changes:
        _check_order(changes, order, shape.merge_key)
    if changes is None:
        found = current
    elif current is None:
        found = _without_directives(changes)
    else:
        found = _merge_list(current, changes, shape)
    merged[field] = _ordered(found or [], order, current or [], shape.merge_key)


def _check_order(changes: list[Any], order: list[Any], key: str) -> None:
    kept = [item for item in changes if not (isinstance(item, dict) and item.get("$patch") == "delete")]
    at = 0
    for item in order:
        if at < len(kept) and _identity(kept[at], key) == _identity(item, key):
            at += 1
    if at < len(kept):
        lists = f"{go_syntax(changes)}\n doesn't match {_ORDER[:-1]} list:\n{go_syntax(order)}\n"
        raise _failed(f"The order in patch list:\n{lists}")


def _identity(item: Any, key: str) -> Any:
    return item.get(key) if isinstance(item, dict) else item


def _ordered(merged: list[Any], wanted: list[Any], before: list[Any], key: str) -> list[Any]:
    """Return the patch's items in its order and the others in the server's order, new ones first."""
    first = [_identity(item, key) for item in wanted]
    was = [_identity(item, key) for item in before]
    asked = sorted(
        (item for item in merged if _identity(item, key) in first), key=lambda item: first.index(_identity(item, key))
    )
    others = [item for item in merged if _identity(item, key) not in first]
    result: list[Any] = []
    while asked and others:
        left, right = _identity(others[0], key), _identity(asked[0], key)
        goes_first = left in was and right in was and was.index(left) < was.index(right)
        result.append((others if goes_first else asked).pop(0))
    return [*result, *asked, *others]


def _without_directives(value: Any) -> Any:
    """Return a new item without directives and without nulls."""
    if isinstance(value, dict):
        return {
            key: _without_directives(item)
            for key, item in value.items()
            if not key.startswith("$") and item is not None
        }
    if isinstance(value, list):
        kept = [item for item in value if not (isinstance(item, dict) and "$patch" in item)]
        return [_without_directives(item) for item in kept]
    return value


def go_syntax(value: Any) -> str:
    """Return a value as Go prints it."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{go_syntax(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(go_syntax, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return "<nil>" if value is None else str(value)
