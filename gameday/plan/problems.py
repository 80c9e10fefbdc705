"""What is wrong with a plan, in a form a person can act on and a terminal can show.

Plans are hostile input: everything taken from one is made printable and cut
before it becomes part of a message. Imports no pydantic, so that the command
line can catch a PlanError without paying for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_VALUE_MAX = 80
_TEXT_MAX = 400
_PROBLEMS_MAX = 20
"""What a person mends in one go; a file that is no plan at all has hundreds."""


def printable(text: str, limit: int = _TEXT_MAX) -> str:
    """`text` on one line, control and other unprintable characters as escapes, cut to `limit` characters."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)


def printable_lines(text: str) -> str:
    """`text` whole and with its line ends; every other unprintable character as an escape."""
    return "\n".join(printable(line, len(line)) for line in text.split("\n"))


def shown(value: object) -> str:
    """A value of a plan, quoted where it is text; mappings and lists only by their size."""
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
            # Cut before repr: its cost and its quotes then stay with what is shown.
            return repr(value) if len(value) <= _VALUE_MAX else f"{value[: _VALUE_MAX - 1]!r}…"
    return printable(str(value), _VALUE_MAX)


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


@dataclass(frozen=True, slots=True)
class PlanProblem:
    """One thing to mend. `line` and `column` count from 1; None where the file could not be read at all."""

    file: str
    line: int | None
    column: int | None
    where: str
    """Dotted path of the key, e.g. `expect.alerts[0].within`; empty for the whole file."""
    value: str | None
    """The offending value as `shown` shows it; None where there is none, as for a missing key."""
    message: str
    suggestion: str | None = None

    def __str__(self) -> str:
        place = "".join(f":{number}" for number in (self.line, self.column) if number is not None)
        head = ": ".join(part for part in (printable(self.file) + place, self.where, printable(self.message)) if part)
        rows = [head]
        if self.value is not None:
            rows.append(f"    value: {self.value}")
        if self.suggestion:
            rows.append(f"    suggestion: {printable(self.suggestion)}")
        return "\n".join(rows)


class PlanError(Exception):
    """A plan cannot be used. `problems` is never empty and is in the order of the file."""

    def __init__(self, problems: Iterable[PlanProblem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda p: (p.line or 0, p.column or 0)))
        super().__init__(self.problems)

    def __str__(self) -> str:
        rows = [str(problem) for problem in self.problems[:_PROBLEMS_MAX]]
        if more := len(self.problems) - len(rows):
            rows.append(f"… and {more} more")
        return "\n".join(rows)
