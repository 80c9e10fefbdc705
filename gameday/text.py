"""Make text from outside safe to show: on one line, printable, and shortened.

Plans, logs, metrics and pod output are hostile input. This module imports nothing, so that the command line starts
fast.
"""

from __future__ import annotations

import re

_VALUE_MAX_CHARACTERS = 80
_TEXT_MAX_CHARACTERS = 400
# What credentials look like in logs: authorization headers, JSON web tokens, key=value pairs, user:password@ in a URL.
# The search is linear in the text: a web token is tried only at the start of a run of its characters, and only if the
# two dots follow.
_SECRET = re.compile(
    r"(?P<keep>\b(?:bearer|basic)\s+|\b(?:password|passwd|secret|token|api[_-]?key)[\"']?\s*[=:]\s*[\"']?|://[^/\s:@]{1,64}:)"
    r"[A-Za-z0-9+/=._~%!$*-]{6,}"
    r"|(?<![A-Za-z0-9_-])(?=[A-Za-z0-9_-]++\.[A-Za-z0-9_-]{4,}+\.)(?P<before>(?:[A-Za-z0-9_-]*?-)??)"
    r"eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]++\.[A-Za-z0-9_-]*+",
    re.IGNORECASE,
)


def printable(text: str, limit: int = _TEXT_MAX_CHARACTERS) -> str:
    """Return `text` on one line, with unprintable characters as escapes, shortened to `limit` characters."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)


def printable_lines(text: str) -> str:
    """Return all of `text` with its line ends, and every other unprintable character as an escape."""
    return "\n".join(printable(line, len(line)) for line in text.split("\n"))


def shown(value: object) -> str:
    """Return a value as messages show it: text quoted, mappings and lists only by their size."""
    match value:
        case dict():
            return f"a mapping of {len(value)}"
        case list():
            return f"a list of {len(value)}"
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case str():
            # Cut before repr: its cost grows with the text, and the cut would remove its closing quote.
            return repr(value) if len(value) <= _VALUE_MAX_CHARACTERS else f"{value[: _VALUE_MAX_CHARACTERS - 1]!r}…"
    return printable(str(value), _VALUE_MAX_CHARACTERS)


def without_secrets(text: str) -> str:
    """Replace everything that looks like a credential by `(hidden)`; the key before it stays."""
    return _SECRET.sub(lambda found: f"{found['keep'] or found['before'] or ''}(hidden)", text)
