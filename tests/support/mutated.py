"""JSON as somebody left it who edited it, tore it or meant harm: values set, dropped and added at any path."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

ODD: list[Any] = json.loads(
    '[null, true, -1, 9223372036854775808, 1e308, NaN, Infinity, "", "\\u0000", "../../secrets/x", [], {}, [{"a": 0}],'
    '"0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "P999999999D", "-PT5S", "clean", "dirty", "passed", 0, 3]'
)
Change = tuple[list[int], str, Any]
"""A path by the number of the key or item at each level, what is done there, and with which value."""


def changes(first: st.SearchStrategy[int], *more: Any) -> st.SearchStrategy[Change]:
    """Return changes; `first` is the number at the path's first level, and `more` are values that suit the object."""
    values = st.sampled_from([*more, *more, *ODD]) | st.text(max_size=8)
    paths = st.tuples(first, st.lists(st.integers(0, 7), max_size=2)).map(lambda path: [path[0], *path[1]])
    return st.tuples(paths, st.sampled_from([*["set"] * 6, "drop", "add"]), values)


def changed(one: Any, change: Change) -> Any:
    """Return a copy of some JSON with a change made to it."""
    (at, *deeper), act, value = change
    if isinstance(one, list) and one:
        at %= len(one)
        inner = changed(one[at], (deeper, act, value)) if deeper else value
        return [*one[:at], *([] if act == "drop" and not deeper else [inner]), *one[at + 1 :]]
    if not isinstance(one, dict) or not one:
        return value
    key = sorted(one)[at % len(one)]
    if deeper and act != "add":
        return one | {key: changed(one[key], (deeper, act, value))}
    if act == "drop":
        return {other: found for other, found in one.items() if other != key}
    return one | {(f"{key}x" if act == "add" else key): value}
