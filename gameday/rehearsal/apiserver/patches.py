"""JSON patch, JSON merge patch and strategic merge patch. All return new objects and leave their input alone."""

from __future__ import annotations

from typing import Any

import jsonpatch
import jsonpointer
import orjson

from gameday.rehearsal.apiserver import schema
from gameday.rehearsal.apiserver.errors import ApiError, bad_request

Json = dict[str, Any]
Path = tuple[str, ...]

_ABSENT = object()


def json_patch(target: Json, operations: Any) -> Json:
    """RFC 6902. Raises ApiError 400 for a malformed patch, 422 when it does not apply."""
    if not isinstance(operations, list):
        raise bad_request("error decoding patch: a JSON patch is a list of operations")
    copied: Json = orjson.loads(orjson.dumps(target))
    try:
        patched = jsonpatch.JsonPatch(operations).apply(copied, in_place=True)
    except jsonpatch.InvalidJsonPatch as error:
        raise bad_request(f"error decoding patch: {error}") from error
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, KeyError, TypeError) as error:
        message = f"the server rejected our request due to an error in our request: {error}"
        raise ApiError(422, "Invalid", message) from error
    if not isinstance(patched, dict):
        raise ApiError(422, "Invalid", "the patch leaves no object")
    return patched


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def strategic_merge(target: Json, patch: Json) -> Json:
    """Strategic merge by the built-in kinds' merge keys. Raises ApiError 400 for directives that make no sense."""
    merged = _merge_map(target, patch, ())
    if not isinstance(merged, dict):
        raise bad_request("the patch deletes the object itself")
    return merged


def _merge_map(target: Json, patch: Json, path: Path) -> Any:
    directive = patch.get("$patch")
    if directive == "replace":
        return _clean({key: value for key, value in patch.items() if key != "$patch"})
    if directive == "delete":
        return _ABSENT if path else {}
    if directive not in (None, "merge"):
        raise bad_request(f"Unknown patch type found: {directive}")
    merged = dict(target)
    for key in set(merged) - set(patch["$retainKeys"]) if "$retainKeys" in patch else ():
        del merged[key]
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            merged[field] = [item for item in merged.get(field) or [] if item not in value]
        elif not key.startswith("$"):
            _merge_field(merged, key, value, (*path, key))
    return merged


def _merge_field(merged: Json, key: str, value: Any, path: Path) -> None:
    if value is None:
        merged.pop(key, None)
        return
    current = merged.get(key)
    if isinstance(value, dict):
        result = _merge_map(current if isinstance(current, dict) else {}, value, path)
        if result is _ABSENT:
            merged.pop(key, None)
        else:
            merged[key] = result
    elif isinstance(value, list):
        merged[key] = _merge_list(current if isinstance(current, list) else [], value, path)
    else:
        merged[key] = value


def _merge_list(current: list[Any], patch: list[Any], path: Path) -> list[Any]:
    if not all(isinstance(item, dict) for item in patch):
        return [*current, *(item for item in patch if item not in current)] if schema.is_set(path) else patch
    if any(item.get("$patch") == "replace" for item in patch):
        return [_clean(item) for item in patch if item.get("$patch") != "replace"]
    rule = schema.list_rule(path)
    if not rule.patch_key:
        return [_clean(item) for item in patch if "$patch" not in item]
    merged = list(current)
    for item in patch:
        _merge_item(merged, item, rule, path)
    return merged


def _merge_item(merged: list[Any], item: Json, rule: schema.ListRule, path: Path) -> None:
    key = rule.patch_key
    if key not in item:
        raise bad_request(f"map: {item} does not contain declared merge key: {key}")
    index = next((i for i, old in enumerate(merged) if isinstance(old, dict) and old.get(key) == item[key]), None)
    if item.get("$patch") == "delete":
        if index is not None:
            del merged[index]
    elif index is None:
        merged.append(_clean(item))
    else:
        merged[index] = _merge_map(merged[index], item, path)


def _clean(value: Any) -> Any:
    """What a new item looks like without directives and without nulls."""
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items() if not key.startswith("$") and item is not None}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value
