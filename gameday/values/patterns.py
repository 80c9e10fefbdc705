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
