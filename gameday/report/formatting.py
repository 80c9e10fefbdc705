"""How values are written for people, and the gate every string passes on its way into the page.

Plans, logs, labels and pod output are hostile input: beside Jinja's escaping,
control characters are made visible and no value may flood the page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

from gameday.checks.facts import seconds_text

NOT_MEASURED = "not measured"
LONGEST = 600
"""Characters of one value on the page; whole values stand in report.json."""
LONGEST_VERBATIM = 65_536
"""Characters of an inline file (the plan)."""

# C0 and C1 controls (ANSI escapes among them) but tab and newline, and the bidirectional overrides
# that let a name be read backwards (U+202A-E, U+2066-9, U+200E-F).
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


# No user or password in it: a link is for people to click, and a page is forwarded.
_ADDRESS = re.compile(r"https?://[^\s/?#@\\<>\"'`]+([/?#][^\s<>\"'`]*)?", re.IGNORECASE)


# What credentials look like in logs: authorization headers, JSON web tokens, key=value pairs, user:password@ in a URL.
_SECRET = re.compile(
    r"(?P<keep>\b(?:bearer|basic)\s+|\b(?:password|passwd|secret|token|api[_-]?key)[\"']?\s*[=:]\s*[\"']?|://[^/\s:@]{1,64}:)"
    r"[A-Za-z0-9+/=._~%!$*-]{6,}|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """Log lines and messages of others: what looks like a credential is taken out, what stands before it stays."""
    return _SECRET.sub(lambda found: f"{found['keep'] or ''}(hidden)", text)


def visible(text: str) -> str:
    """Control characters as their names, so that they are seen and do nothing."""
    return _UNSAFE.sub(lambda match: f"\\x{ord(match[0]):02x}", text.replace("\r\n", "\n"))


def cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters in all)"


def clip(value: Any) -> Any:
    """Jinja's finalize: None is 'not measured', every string is made visible and cut; markup passes."""
    if value is None:
        return NOT_MEASURED
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(cut(value, LONGEST))
    return value


def verbatim(text: str) -> Markup:
    return escape(visible(cut(text, LONGEST_VERBATIM)))


def duration(seconds: float | None) -> str:
    return NOT_MEASURED if seconds is None or not math.isfinite(seconds) else seconds_text(seconds)


def limit(seconds: float) -> str:
    """A bound as the plan has it: `30 s`, not `30.0 s`."""
    return f"{seconds:g} s" if seconds < 120 else seconds_text(seconds)


def sentence(text: str) -> str:
    """First letter upper case, the rest as it is: names in it keep theirs."""
    return text[:1].upper() + text[1:]


def offset(seconds: float | None) -> str:
    """`T+4.2 s`, `T−12.0 s`."""
    if seconds is None or not math.isfinite(seconds):
        return NOT_MEASURED
    return f"T{'−' if seconds < 0 else '+'}{seconds_text(abs(seconds))}"


def change(seconds: float) -> str:
    """`1.2 s slower than`, `0.30 s faster than`; a difference below what durations are written to is none."""
    if abs(seconds) < 0.005:
        return "the same as in"
    return f"{seconds_text(abs(seconds))} {'slower' if seconds > 0 else 'faster'} than"


def clock(at: datetime | None) -> str:
    """`09:00:12.4`, in UTC; the page's script can turn it to the reader's zone."""
    return (
        NOT_MEASURED if at is None else _time(at, f"{at.astimezone(UTC):%H:%M:%S.}{at.microsecond // 100_000}", "clock")
    )


def moment(at: datetime | None) -> str:
    """Date and time in UTC; where scripts run, the reader's own zone stands beside it."""
    return NOT_MEASURED if at is None else _time(at, f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC", "moment")


def _time(at: datetime, text: str, kind: str) -> Markup:
    return Markup('<time class="{}" datetime="{}">{}</time>').format(kind, at.astimezone(UTC).isoformat(), text)


def number(value: float | int | str | None) -> str:
    """Three significant places at least, thousands apart, no trailing zeros; text as it is."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return NOT_MEASURED
    if isinstance(value, str):
        return value
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) < 100 else f"{value:.1f}"


def signed(value: float | None) -> str:
    """One decimal and its sign; `0.0` has none."""
    if value is None or not math.isfinite(value):
        return NOT_MEASURED
    return f"{value:+.1f}".replace("-", "−") if abs(value) >= 0.05 else "0.0"


def linked(text: str | None) -> Markup | None:
    """A link where the text is an http(s) address, else the text: `javascript:` and the like lead nowhere."""
    if text is None:
        return None
    shown = escape(visible(cut(text, LONGEST)))
    if len(text) > LONGEST or _UNSAFE.search(text) or not _ADDRESS.fullmatch(text):
        return shown
    return Markup('<a class="wrap" href="{}" rel="noreferrer noopener">{}</a>').format(text, shown)


def size(count: int | None) -> str:
    if count is None:
        return NOT_MEASURED
    if count < 1000:
        return f"{count} B"
    return f"{count / 1000:.1f} kB" if count < 1_000_000 else f"{count / 1_000_000:.2f} MB"


def filters() -> dict[str, Callable[..., Any]]:
    named = (duration, limit, sentence, offset, change, clock, moment, number, signed, size, verbatim, linked)
    return {function.__name__: function for function in named}
