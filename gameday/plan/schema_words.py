"""What a JSON schema says of a key, in words, for the pages that are made from models."""

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
_MANY_CHOICES = 10


def key_table(
    model: Mapping[str, Any],
    definitions: Mapping[str, Any],
    *,
    title: str,
    without: Sequence[str] = (),
    known: Mapping[str, str] = {},
) -> Iterator[str]:
    """Lines of a Markdown table, one row a property of an object's schema: its default, what it takes, what it means.

    `title` heads the first column; `without` names properties to leave out; `known` says, by the name of a
    definition, what stands for it in the column `takes`.
    """
    yield f"| {title} | default | takes | meaning |"
    yield "|---|---|---|---|"
    for name, of in model["properties"].items():
        if name not in without:
            default = "required" if name in model.get("required", ()) else _default(of)
            meaning = _cell(of.get("description", ""))
            yield f"| `{name}` | {default} | {_cell(_takes(of, definitions, known))} | {meaning} |"


def _takes(of: Mapping[str, Any], definitions: Mapping[str, Any], known: Mapping[str, str]) -> str:
    """Type and bounds."""
    if "$ref" in of:
        name = of["$ref"].rpartition("/")[2]
        return known.get(name) or _takes(definitions[name], definitions, known)
    if "anyOf" in of:
        return " or ".join(_takes(one, definitions, known) for one in of["anyOf"] if one.get("type") != "null")
    if "oneOf" in of:
        return "a fault, with its `type`"
    if of.get("type") == "array" and "items" in of:
        return f"a list, each {_takes(of['items'], definitions, known)}"
    if choices := of.get("enum"):
        return "one of those below" if len(choices) > _MANY_CHOICES else ", ".join(f"`{choice}`" for choice in choices)
    bounds = [words.format(of[key]) for key, words in _BOUNDS.items() if key in of]
    named = {"60s": "duration", "50%": "share, like 50%"}
    said = next((name for example, name in named.items() if example in of.get("examples", ())), None)
    kind = "mapping" if of.get("type") == "object" else str(of.get("format") or of.get("type", "value"))
    return said or ", ".join([kind, *bounds])


def _default(of: Mapping[str, Any]) -> str:
    """A section of its own keys has none: they say theirs."""
    if "$ref" in of and isinstance(of.get("default"), dict):
        return ""
    default = of.get("default")
    if default is None:
        return "none"
    return _cell(f"`{default if isinstance(default, str) else json.dumps(default)}`")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
