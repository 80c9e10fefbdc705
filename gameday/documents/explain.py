"""Turn pydantic's errors about a document into problems with a line, a value, a message and a suggestion."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, TypeGuard, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gameday.documents.fields import (
    ALERT_NAME,
    LABEL_KEY,
    LABEL_VALUE,
    NODE_NAME,
    PLAN_NAME,
    TIME_OF_DAY,
    DocumentModel,
)
from gameday.documents.problems import dotted
from gameday.documents.source import Path, Source
from gameday.errors import DocumentProblem
from gameday.text import shown

_EXPECTED = {
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be a mapping of keys to values",
    "model_type": "must be a mapping of keys to values",
    "model_attributes_type": "must be a mapping of keys to values",
}
_PATTERNS = {
    PLAN_NAME: "must be lower-case letters, digits and `-`, like gpu-fell-off-the-bus",
    NODE_NAME: "must be a node's name: lower-case letters, digits, `-` and `.`",
    ALERT_NAME: "must be an alert's name: letters, digits, `_` and `:`, like GPUFellOffTheBus",
    LABEL_KEY: "must be a label key, like nvidia.com/gpu.product",
    LABEL_VALUE: "must be a label value: letters, digits, `-`, `_` and `.`",
    TIME_OF_DAY: "must be a time of day in quotes, like '09:30'",
}
_QUOTED = re.compile(r"'([^']*)'")
_NEARLY_A_DURATION = re.compile(
    r"\s*(?P<number>[0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(?P<unit>milli|msec|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h)?"
    r"(?:s|seconds?)?\s*",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Tagged:
    """A base model with a key `type` that selects the subclass, such as a fault's parameters."""

    base: type[BaseModel]
    by_type: Mapping[str, type[BaseModel]]


@dataclass(frozen=True, slots=True)
class _Shape:
    """The model of a document, and its data, which select the tagged models inside it."""

    root: type[BaseModel]
    data: Any
    tagged: Tagged | None

    def model(self, annotation: Any, path: Path) -> Any:
        """Return the annotation of the value at `path` without `| None`; for a tagged model, that of its `type`."""
        if get_origin(annotation) in (Union, UnionType):
            annotation = next(arg for arg in get_args(annotation) if arg is not NoneType)
        bare = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
        if isinstance(bare, type) and issubclass(bare, DocumentModel) and bare.whole() is not bare:
            return bare.whole()
        if self.tagged is None or bare is not self.tagged.base:
            return annotation
        name = _lookup(self.data, (*path, "type"))[1]
        return self.tagged.by_type.get(name, bare) if isinstance(name, str) else bare


@dataclass(frozen=True, slots=True)
class _Explanation:
    message: str
    suggestion: str | None = None


def explain(
    error: ValidationError, source: Source, file: str, root: type[BaseModel], tagged: Tagged | None = None
) -> Iterator[DocumentProblem]:
    """Yield one problem for each of pydantic's errors.

    Args:
        error: Pydantic's errors about `source`.
        source: The document as it was parsed, with the place of every key.
        file: The file's name, for the messages.
        root: The document's model.
        tagged: The models inside `root` that a key `type` selects; None if there are none.
    """
    shape = _Shape(root, source.data, tagged)
    for detail in error.errors(include_url=False):
        at = detail.get("ctx", {}).get("at", ())
        path: Path = (*(step for step in detail["loc"] if step != "[key]"), *at)
        missing = detail["type"] == "missing"
        where = path[:-1] if missing else path
        place = source.place(where)
        on_key = (
            missing or detail["type"] == "extra_forbidden" or "[key]" in detail["loc"] or where not in source.places
        )
        line, column = place.key if on_key else place.value
        is_present, value = (False, None) if missing else _lookup(source.data, path)
        if "[key]" in detail["loc"]:
            value = path[-1]
        explanation = _explanation(detail, path, value, shape)
        yield DocumentProblem(
            file,
            line,
            column,
            dotted(where),
            shown(value) if is_present else None,
            explanation.message,
            explanation.suggestion,
        )


def _lookup(data: Any, path: Path) -> tuple[bool, Any]:
    """Return True if there is a value at `path`, and the value."""
    for step in path:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return False, None
    return True, data


def _explanation(detail: ErrorDetails, path: Path, value: Any, shape: _Shape) -> _Explanation:
    kind, context, message = detail["type"], detail.get("ctx", {}), detail["msg"]
    suggestion = None
    match kind:
        case "extra_forbidden":
            message, suggestion = "this key is not known here", _suggest_key(path, shape)
        case "missing":
            message, suggestion = f"`{path[-1]}` is missing", _suggest_addition(path, shape)
        case "enum" | "literal_error":
            choices = _QUOTED.findall(context["expected"])
            message, suggestion = f"must be one of: {', '.join(choices)}", _suggest_nearest(value, choices)
        case "fault_type" | "remediation":
            suggestion = _suggest_nearest(value, context["known"].split(", "))
        case "duration":
            suggestion = _suggest_duration(value)
        case "string_pattern_mismatch":
            message = _PATTERNS.get(context["pattern"], f"must match {context['pattern']}")
        case "conflict" | "value_error":
            message = message.removeprefix("Value error, ")
        case "greater_than" | "greater_than_equal" if "timedelta" in str(context):
            message = "must be longer than 0s" if kind == "greater_than" else "must not be negative"
        case _:
            message = _EXPECTED.get(
                kind, message.replace("Input should be", "must be").replace("String should", "must")
            )
            suggestion = _suggest_other_type(kind, value)
    return _Explanation(message, suggestion)


def _suggest_other_type(kind: str, value: Any) -> str | None:
    if value is None:
        return "give the key a value, or take it out"
    if kind == "string_type" and isinstance(value, bool | int | float):
        return f"put it in quotes: '{str(value).lower() if isinstance(value, bool) else value}'"
    if kind in ("tuple_type", "list_type") and isinstance(value, str | int):
        return f"write it as a list: [{shown(value)}]"
    return None


def _suggest_key(path: Path, shape: _Shape) -> str | None:
    model = _model_at(path[:-1], shape)
    fields = list(model.model_fields) if model else []
    if near := _suggest_nearest(path[-1], fields):
        return near
    if elsewhere := next((found for found in _paths(shape.root, shape) if found[-1] == path[-1]), None):
        return f"it belongs at `{dotted(elsewhere)}`"
    return f"known here: {', '.join(fields)}" if fields else None


def _suggest_nearest(value: object, choices: list[str]) -> str | None:
    by_folded = {choice.lower().replace("_", "-"): choice for choice in choices}
    # The value is cut because the matcher's cost grows with the product of the lengths.
    folded = str(value)[:64].lower().replace("_", "-")
    near = difflib.get_close_matches(folded, by_folded, n=1, cutoff=0.6)
    return f"did you mean `{by_folded[near[0]]}`?" if near else None


def _suggest_duration(value: object) -> str | None:
    if isinstance(value, bool) or not (found := _NEARLY_A_DURATION.fullmatch(str(value)[:64])):
        return None
    unit = (found["unit"] or "s").lower()
    return f"write `{found['number']}{'ms' if unit[:2] in ('ms', 'mi') and unit[:3] != 'min' else unit[0]}`"


def _suggest_addition(path: Path, shape: _Shape) -> str:
    model = _model_at(path[:-1], shape)
    description = (model.model_fields[str(path[-1])].description or "") if model else ""
    return f"add `{path[-1]}:`" + (f" ({' '.join(description.split())})" if description else "")


def _model_at(path: Path, shape: _Shape) -> type[BaseModel] | None:
    """Return the model of the part at `path`, or None if the document's model has no such part."""
    current: Any = shape.root
    for depth, step in enumerate(path, start=1):
        if isinstance(step, int):
            current = shape.model(next(iter(get_args(current)), None), path[:depth])
        elif _is_model(current) and step in current.model_fields:
            current = shape.model(current.model_fields[step].annotation, path[:depth])
        else:
            return None
    return current if _is_model(current) else None


def _paths(model: type[BaseModel], shape: _Shape, prefix: Path = ()) -> Iterator[Path]:
    """Yield the path of every key that a document may have; a list is represented by its first item."""
    for name, field in model.model_fields.items():
        path: Path = (*prefix, name)
        yield path
        annotation = shape.model(field.annotation, path)
        item = shape.model(next(iter(get_args(annotation)), None), (*path, 0))
        if _is_model(annotation):
            yield from _paths(annotation, shape, path)
        elif _is_model(item):
            yield from _paths(item, shape, (*path, 0))


def _is_model(annotation: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
