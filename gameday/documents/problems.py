"""What is wrong with a plan, in a form a person can act on and a terminal can show.

Plans are hostile input: everything taken from one is made printable and cut
before it becomes part of a message. Imports no pydantic, so that the command
line can catch a DocumentError without paying for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from gameday.text import printable, shown

_VALUE_MAX = 80
_TEXT_MAX = 400
_PROBLEMS_MAX = 20
"""What a person mends in one go; a file that is no plan at all has hundreds."""


def dotted(path: Iterable[str | int]) -> str:
    """('expect', 'alerts', 0, 'within') -> expect.alerts[0].within; odd keys are quoted."""
    out = ""
    for step in path:
        if isinstance(step, int):
            out += f"[{step}]"
        elif step.replace("_", "").replace("-", "").isalnum() and step.isascii():
            out += f".{printable(step, _VALUE_MAX)}"
        else:
            out += f"[{shown(step)}]"
    return out.removeprefix(".")
