"""Regular expressions from plans and policies, which meet hostile text: RE2's, of a time that grows no faster than it.

Python's own `re` can be made to run for years by a pattern and a text that fit each other.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False  # RE2 writes them to stderr itself otherwise


def why_no_pattern(pattern: str) -> str:
    """Return why RE2 refuses a pattern; empty: it takes it."""
    try:
        _compiled(pattern)
    except ValueError as error:
        return str(error)[:200]
    return ""


def found_in(pattern: str, text: str) -> bool:
    """Return whether a pattern matches anywhere in a text. Raises ValueError for no pattern."""
    return _compiled(pattern).search(text.encode("utf-8", "replace")) is not None


STEP_GROUP = "step"
"""The group that holds a step's number."""


def steps_in(pattern: str, lines: list[str]) -> list[int | None]:
    """Return the number that the group `step` holds in each line; None for a line without one.

    Raises ValueError for a pattern that has unnamed groups.
    """
    compiled = _compiled(pattern)
    if compiled.groups != len(compiled.groupindex):
        raise ValueError("a group has no name")
    found = [compiled.search(line.encode("utf-8", "replace")) for line in lines]
    return [_number(match[STEP_GROUP] or b"") if match else None for match in found]


@lru_cache(maxsize=64)  # of at most 8 MiB each, RE2's own limit on one pattern
def _compiled(pattern: str) -> Any:
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        raise ValueError(error.args[0].decode("utf-8", "replace")) from None


def _number(digits: bytes) -> int | None:
    return int(digits) if digits.isdigit() and len(digits) < _DIGITS else None


_DIGITS = 16
"""Numbers as long as this are no steps."""
