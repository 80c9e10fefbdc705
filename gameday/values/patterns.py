"""Regular expressions from plans, which meet hostile text: RE2's, whose time grows with the text and no faster.

Python's own `re` can be made to run for years by a pattern and a text that fit each other. RE2 comes with pyarrow,
which is imported late: most commands need no pattern.
"""

from __future__ import annotations

from importlib import import_module


def why_no_pattern(pattern: str) -> str:
    """Return why RE2 refuses a pattern; empty: it takes it."""
    try:
        found_in(pattern, "")
    except ValueError as error:  # pyarrow's errors and UnicodeEncodeError are
        return str(error).removeprefix("Invalid regular expression: ")[:200]
    return ""


def found_in(pattern: str, text: str) -> bool:
    """Return whether a pattern matches anywhere in a text. Raises ValueError for no pattern."""
    arrow, compute = import_module("pyarrow"), import_module("pyarrow.compute")
    return bool(compute.match_substring_regex(arrow.array([text]), pattern)[0].as_py())


STEP_GROUP = "step"
"""The group that holds a step's number."""


def steps_in(pattern: str, lines: list[str]) -> list[int | None]:
    """Return the number that the group `step` holds in each line; None for a line without one.

    Raises ValueError for a pattern that has unnamed groups.
    """
    arrow, compute = import_module("pyarrow"), import_module("pyarrow.compute")
    found = compute.extract_regex(arrow.array(lines, arrow.string()), pattern).to_pylist()
    return [_number(row[STEP_GROUP] or "") if row else None for row in found]


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < _DIGITS else None


_DIGITS = 16
"""Numbers as long as this are no steps."""
