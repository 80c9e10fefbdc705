"""The list of flaky tests, tests/quarantine.txt: the nightly plays them, and no other suite does."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

FILE = Path(__file__).resolve().parents[1] / "quarantine.txt"
PLAY_VARIABLE = "GAMEDAY_PLAY_QUARANTINED"
"""Set in the environment of the nightly's suites."""
MOST = 10
STAYS_AT_MOST = timedelta(days=7)
# A parameter may hold blanks, so the date is what ends the test's id.
_LINE = re.compile(r"(?P<test>tests/\S+?\.py::\S.*?)\s+(?P<since>\d{4}-\d\d-\d\d)\s+(?P<cause>\S.*)")


@dataclass(frozen=True)
class Quarantined:
    """A flaky test, since when it is known to be one, and the suspected cause."""

    test: str
    since: date
    cause: str

    def holds(self, test: str) -> bool:
        """Return True if a test is this one, or one of its parameters."""
        return test == self.test or test.startswith(f"{self.test}[")

    def is_overdue(self, today: date) -> bool:
        return today - self.since > STAYS_AT_MOST


def parse(text: str) -> tuple[Quarantined, ...]:
    """Return what a list says. Raises ValueError, with the line, where it is malformed or too long."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            raise ValueError(f"line {number} is not `tests/FILE.py::TEST YYYY-MM-DD CAUSE`: {line}")
        found.append(Quarantined(match["test"], date.fromisoformat(match["since"]), match["cause"]))
    if len(found) > MOST:
        raise ValueError(f"{len(found)} tests are listed, and {MOST} may be: mend or delete some")
    return tuple(found)


def quarantined(file: Path = FILE) -> tuple[Quarantined, ...]:
    """Return the listed tests. Raises ValueError as `parse` does."""
    return parse(file.read_text(encoding="utf-8"))


def is_listed(test: str, listed: Iterable[Quarantined]) -> bool:
    return any(one.holds(test) for one in listed)
