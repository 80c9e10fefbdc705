"""The path of a key in a document, in the form that messages show.

Documents are hostile input, so a key is made printable and cut.
"""

from __future__ import annotations

from collections.abc import Iterable

from gameday.text import printable, shown

_KEY_MAX_CHARACTERS = 80


def dotted(path: Iterable[str | int]) -> str:
    """Return a path as people write it: ('expect', 'alerts', 0) becomes `expect.alerts[0]`; odd keys are quoted."""
    out = ""
    for step in path:
        if isinstance(step, int):
            out += f"[{step}]"
        elif step.replace("_", "").replace("-", "").isalnum() and step.isascii():
            out += f".{printable(step, _KEY_MAX_CHARACTERS)}"
        else:
            out += f"[{shown(step)}]"
    return out.removeprefix(".")
