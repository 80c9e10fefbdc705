"""Points in time and durations in Loki's forms."""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal, InvalidOperation

_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h|d|w)")
_DURATION_MAX_CHARACTERS = 64
"""More characters than any sensible duration has; the pattern takes quadratic time on digits alone."""
_NS = {
    "ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9,
    "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9, "w": 7 * 86400 * 10**9,
}  # fmt: skip
# Loki takes an integer of up to ten digits for seconds and a longer one for nanoseconds (pkg/loghttp/params.go).
_SECONDS_DIGITS = 10
_LATEST_NS = 2**63 - 1


def nanoseconds(text: str) -> int:
    """Return the Unix ns of `1700000000`, `1700000000.5`, `1700000000000000000` or RFC 3339. Raises ValueError."""
    stamp = _RFC3339.fullmatch(text)
    if stamp:
        whole = datetime.fromisoformat(stamp[1] + stamp[3])
        return int(whole.timestamp()) * 10**9 + int((stamp[2] or "0").ljust(9, "0"))
    try:
        ns = int(text) if len(text) > _SECONDS_DIGITS and "." not in text else int(Decimal(text) * 10**9)
    except (ValueError, InvalidOperation, OverflowError):
        raise ValueError(f"cannot parse {text[:64]!r} to a valid timestamp") from None
    if not 0 <= ns <= _LATEST_NS:
        raise ValueError(f"timestamp {text[:64]!r} is out of range")
    return ns


def duration(text: str) -> int:
    """Return the nanoseconds of `10s` or `1h30m`. Raises ValueError."""
    parts = list(_DURATION.finditer(text)) if len(text) <= _DURATION_MAX_CHARACTERS else []
    if not parts or "".join(part.group() for part in parts) != text:
        raise ValueError(f"cannot parse {text[:64]!r} to a valid duration")
    return sum(int(Decimal(part[1]) * _NS[part[2]]) for part in parts)
