"""Regular expressions from plans and policies, which meet hostile text. RE2 matches them in time linear in the text.

Python's own `re` can run for years on a pattern and a text that fit each other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import re2

_FLAGS = re.compile(r"\(\?([a-zA-Z]+)\)")
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False  # otherwise RE2 writes them to stderr itself


def why_no_pattern(pattern: str) -> str:
    """Return why RE2 refuses a pattern; empty if it accepts it."""
    try:
        _compiled(pattern)
    except ValueError as error:
        return str(error)[:200]
    return ""


def found_in(pattern: str, text: str) -> bool:
    """Return True if a pattern matches anywhere in a text. Raises ValueError for an invalid pattern."""
    return _compiled(pattern).search(text.encode("utf-8", "replace")) is not None


def begins(text: str, pattern: str) -> int:
    """Return how many bytes at a text's start a pattern matches. Raises ValueError for an invalid pattern."""
    found = _compiled(pattern).match(text.encode("utf-8", "replace"))
    return found.end() if found else 0


def either(patterns: Sequence[str]) -> str:
    """Return a pattern that matches if any of these does; the flags at the start of one apply only to it."""
    if len(patterns) == 1:
        return patterns[0]
    parts = ((_FLAGS.match(pattern), pattern) for pattern in patterns)
    return "|".join(
        f"(?{flags[1]}:{pattern[flags.end() :]})" if flags else f"(?:{pattern})" for flags, pattern in parts
    )


STEP_GROUP = "step"
"""The name of the group with a step's number."""


def steps_in(pattern: str, lines: list[str]) -> list[int | None]:
    """Return the number in the group `step` for each line; None for a line without one.

    Raises ValueError for a pattern with unnamed groups.
    """
    compiled = _compiled(pattern)
    if compiled.groups != len(compiled.groupindex):
        raise ValueError("a group has no name")
    found = [compiled.search(line.encode("utf-8", "replace")) for line in lines]
    return [_number(match[STEP_GROUP] or b"") if match else None for match in found]


@lru_cache(maxsize=64)  # at most 8 MiB each, RE2's own limit for one pattern
def _compiled(pattern: str) -> Any:
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        raise ValueError(error.args[0].decode("utf-8", "replace")) from None


def _number(digits: bytes) -> int | None:
    return int(digits) if digits.isdigit() and len(digits) < _DIGITS else None


_DIGITS = 16
"""Numbers of this length are not steps."""
