"""Hide what looks like a credential in text of other programs."""

from __future__ import annotations

import re

# What credentials look like in logs: authorization headers, JSON web tokens, key=value pairs, user:password@ in a URL.
_SECRET = re.compile(
    r"(?P<keep>\b(?:bearer|basic)\s+|\b(?:password|passwd|secret|token|api[_-]?key)[\"']?\s*[=:]\s*[\"']?|://[^/\s:@]{1,64}:)"
    r"[A-Za-z0-9+/=._~%!$*-]{6,}|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """Replace what looks like a credential by `(hidden)`; the key before it stays."""
    return _SECRET.sub(lambda found: f"{found['keep'] or ''}(hidden)", text)
