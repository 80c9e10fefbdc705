"""Tables of keys for the documentation, from a model's JSON schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
    "pattern": "`{}`",
}
_TYPE_BY_EXAMPLE = {"60s": "duration", "50%": "share, like 50%"}
_MAX_CHOICES = 10


def key_table(
    schema: Mapping[str, Any],
    definitions: Mapping[str, Any],
    *,
    title: str,
    without: Sequence[str] = (),
    references: Mapping[str, str] = {},
) -> Iterator[str]:
    """Yield the lines of a Markdown table with a row for each key: its default, the values it takes, its meaning.

    The meaning is the first paragraph of the key's description. Further paragraphs follow the table as a list.

    Args:
        schema: The JSON schema of an object.
        definitions: The schemas that it refers to, by name.
        title: Head of the first column.
        without: Keys to leave out.
        references: By the name of a definition, the text for the column `takes`, such as a link to its own table.
    """
    yield f"| {title} | default | takes | meaning |"
    yield "|---|---|---|---|"
    notes = []
    for key, value in schema["properties"].items():
        if key not in without:
            default = "required" if key in schema.get("required", ()) else _default(value)
            meaning, _, more = value.get("description", "").partition("\n\n")
            yield f"| `{key}` | {default} | {_cell(_takes(value, definitions, references))} | {_cell(meaning)} |"
            if more:
                notes.append(f"* `{key}`: {' '.join(more.split())}")
    if notes:
        yield from ("", *notes)


def _takes(schema: Mapping[str, Any], definitions: Mapping[str, Any], references: Mapping[str, str]) -> str:
    """Return a value's type and bounds."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return references.get(name) or _takes(definitions[name], definitions, references)
    if "anyOf" in schema:
        choices = [choice for choice in schema["anyOf"] if choice.get("type") != "null"]
        return " or ".join(_takes(choice, definitions, references) for choice in choices)
    if "oneOf" in schema:
        return "a fault, with its `type`"
    if schema.get("type") == "array" and "items" in schema:
        return f"a list, each {_takes(schema['items'], definitions, references)}"
    if values := schema.get("enum"):
        return "one of those below" if len(values) > _MAX_CHOICES else ", ".join(f"`{value}`" for value in values)
    examples = schema.get("examples", ())
    own_type = next((name for example, name in _TYPE_BY_EXAMPLE.items() if example in examples), None)
    return own_type or _json_type(schema)


def _json_type(schema: Mapping[str, Any]) -> str:
    kind = str(schema.get("format") or schema.get("type", "value"))
    kind = {"object": "mapping", "password": "secret"}.get(kind, kind)
    return ", ".join([kind, *(text.format(schema[key]) for key, text in _BOUNDS.items() if key in schema)])


def _default(schema: Mapping[str, Any]) -> str:
    """Return a value's default; none for a section, because its own keys have theirs."""
    if "$ref" in schema and isinstance(schema.get("default"), dict):
        return ""
    default = schema.get("default")
    if default is None:
        return "none"
    return _cell(f"`{default if isinstance(default, str) else json.dumps(default)}`")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
