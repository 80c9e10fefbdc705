"""Make text from outside safe to show on a page: visible, cut, and never a link that runs code.

Plans, logs, labels and pod output are hostile input. Jinja escapes every value; this module shows control characters as
escapes and keeps a single value from flooding the page.
"""

from __future__ import annotations

import re
from typing import Any

from markupsafe import Markup, escape

from gameday.report.formatting import NOT_MEASURED

LONGEST = 600
"""Characters of one value on the page; report.json holds whole values."""
LONGEST_VERBATIM = 65_536
"""Characters of a file shown inline (the plan)."""

# C0 and C1 controls (ANSI escapes among them) but tab and newline, the bidirectional overrides that let a name be
# read backwards (U+202A-E, U+2066-9, U+200E-F), and halves of surrogate pairs, which UTF-8 cannot hold.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
# Without user and password: a link is for people to click, and a page gets forwarded.
_ADDRESS = re.compile(r"https?://[^\s/?#@\\<>\"'`]+([/?#][^\s<>\"'`]*)?", re.IGNORECASE)


def visible(text: str) -> str:
    """Replace control characters by escapes, so that they are visible and have no effect."""
    return _UNSAFE.sub(lambda match: f"\\x{ord(match[0]):02x}", text.replace("\r\n", "\n"))


def cut(text: str, longest: int) -> str:
    """Return at most `longest` characters of the text, with the full length if some are left out."""
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters in all)"


def clip(value: Any) -> Any:
    """Prepare a value for a template, as Jinja's `finalize`.

    Returns:
        `not measured` for None, a string made visible and cut, and anything else, markup included, unchanged.
    """
    if value is None:
        return NOT_MEASURED
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(cut(value, LONGEST))
    return value


def verbatim(text: str) -> Markup:
    """Escape the text of a file, with its line ends, at most LONGEST_VERBATIM characters of it."""
    return escape(visible(cut(text, LONGEST_VERBATIM)))


def linked(text: str | None) -> Markup | None:
    """Make a link of an http(s) address and escape any other text, so that `javascript:` and the like lead nowhere."""
    if text is None:
        return None
    shown = escape(visible(cut(text, LONGEST)))
    if len(text) > LONGEST or _UNSAFE.search(text) or not _ADDRESS.fullmatch(text):
        return shown
    return Markup('<a class="wrap" href="{}" rel="noreferrer noopener">{}</a>').format(text, shown)
