"""Compares recordings, and knows the differences that are accepted, with their reasons (differences.yaml).

python -m tests.kubesim.conformance.differences    # writes the table in docs/conformance.md
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gameday.shipped import checkout

Json = dict[str, Any]
_HERE = Path(__file__).parent
PAGE = checkout() / "docs" / "conformance.md"
_BEGIN, _END = "<!-- differences: begin -->\n", "<!-- differences: end -->\n"
_ABSENT = "(absent)"


@dataclass(frozen=True)
class Difference:
    """One place in one step where a server says something else than the golden."""

    step: str
    where: str
    """JSON pointer into the exchange."""
    golden: Any
    found: Any

    def __str__(self) -> str:
        shown = [_short(self.golden), _short(self.found)]
        return f"{self.step}: {self.where}\n    golden: {shown[0]}\n    found:  {shown[1]}"


@dataclass(frozen=True)
class Listed:
    """One accepted difference; `step` and `where` are globs."""

    script: str
    step: str
    where: str
    why: str

    def covers(self, script: str, found: Difference) -> bool:
        """Whether it explains the difference."""
        return script == self.script and fnmatchcase(found.step, self.step) and fnmatchcase(found.where, self.where)


def compare(golden: list[Json], found: list[Json]) -> list[Difference]:
    """What differs, step by step; steps that only one side has differ as a whole."""
    theirs, ours = ({exchange["step"]: exchange for exchange in side} for side in (golden, found))
    differences: list[Difference] = []
    for step in dict.fromkeys([*theirs, *ours]):
        pairs = _compared("", theirs.get(step, _ABSENT), ours.get(step, _ABSENT))
        differences += [Difference(step, where or "/", one, other) for where, one, other in pairs]
    if not differences and [*theirs] != [*ours]:
        differences.append(Difference("*", "/", [*theirs], [*ours]))
    return differences


def _compared(where: str, golden: Any, found: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(golden, dict) and isinstance(found, dict):
        for key in sorted({*golden, *found}):
            pointer = f"{where}/{key.replace('~', '~0').replace('/', '~1')}"
            yield from _compared(pointer, golden.get(key, _ABSENT), found.get(key, _ABSENT))
    elif isinstance(golden, list) and isinstance(found, list):
        for index in range(max(len(golden), len(found))):
            one, other = (side[index] if index < len(side) else _ABSENT for side in (golden, found))
            yield from _compared(f"{where}/{index}", one, other)
    elif type(golden) is not type(found) or golden != found:
        yield where, golden, found


def _short(value: Any) -> str:
    text = value if value == _ABSENT else json.dumps(value, sort_keys=True)
    return text if len(text) <= 600 else f"{text[:600]}… ({len(text)} characters)"


@cache
def listed() -> tuple[Listed, ...]:
    """The accepted differences."""
    entries = yaml.safe_load((_HERE / "differences.yaml").read_text(encoding="utf-8")) or []
    return tuple(Listed(**entry) for entry in entries)


def table() -> str:
    """The accepted differences as Markdown, one row for each reason."""
    rows: dict[str, list[str]] = {}
    for entry in listed():
        what = f"{entry.script}: {entry.step}"
        rows.setdefault(entry.why, [])
        if what not in rows[entry.why]:
            rows[entry.why].append(what)
    lines = [f"| {why} | {'; '.join(whats)} |".replace("*", "\\*") for why, whats in rows.items()]
    return "\n".join(["| the embedded server's difference | seen in |", "|---|---|", *lines, ""])


def page_with_table() -> str:
    """docs/conformance.md as it should be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}{table()}{_END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page_with_table(), encoding="utf-8")
