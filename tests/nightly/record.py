"""The folder of a nightly: a folder for each round, in it pytest's JUnit file, ours and the log of each suite."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from xml.etree.ElementTree import ParseError

from tests.nightly import junit
from tests.nightly.junit import Outcome
from tests.support.quarantine import Quarantined, is_listed

WANTED_PERCENT = 99.5
"""The issue's own bound: with thirty such tests a gate passes seven times in eight."""
_LAST = "last-round"


@dataclass(frozen=True)
class Round:
    """One round: every chosen suite once."""

    folder: Path

    @property
    def number(self) -> int:
        return int(self.folder.name.removeprefix("round-"))

    @property
    def last(self) -> int:
        """The last round of those that were asked for together with this one."""
        return int((self.folder / _LAST).read_text(encoding="ascii"))

    def junit(self, suite: str) -> Path:
        """Return the file that pytest's is moved to when it has come to its end."""
        return self.folder / f"{suite}.xml"

    def whole(self, suite: str) -> Path:
        """Return the file about a suite as a whole, which says that it was played."""
        return self.folder / f"{suite}.suite.xml"

    def log(self, suite: str) -> Path:
        return self.folder / f"{suite}.log"

    def was_played(self, suite: str) -> bool:
        return self.whole(suite).is_file()

    def suites(self) -> list[str]:
        return sorted(path.name.removesuffix(".suite.xml") for path in self.folder.glob("*.suite.xml"))

    def outcomes(self) -> list[Outcome]:
        """Return what became of every test, and of every suite as a whole."""
        files = [file for suite in self.suites() for file in (self.junit(suite), self.whole(suite)) if file.is_file()]
        return [outcome for file in files for outcome in _read(file)]


@dataclass
class Test:
    """A test over all rounds of a folder."""

    id: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    why: str = ""
    failed_in: int = 0
    is_quarantined: bool = False

    @property
    def percent(self) -> float:
        """Passes of the times that it was played and not skipped."""
        return 100 * self.passed / (self.passed + self.failed)


@dataclass(frozen=True)
class Record:
    """All rounds of a folder; `tests` that were only ever skipped are counted and not listed, the worst is first."""

    rounds: Sequence[int]
    tests: Sequence[Test]
    only_skipped: int

    @property
    def ever_failed(self) -> list[Test]:
        return [test for test in self.tests if test.failed]

    @property
    def below(self) -> list[Test]:
        return [test for test in self.tests if test.percent < WANTED_PERCENT]


@dataclass
class _Counts:
    tests: dict[str, Test] = field(default_factory=dict)

    def add(self, number: int, outcome: Outcome) -> None:
        test = self.tests.setdefault(outcome.test, Test(outcome.test))
        if outcome.passed is None:
            test.skipped += 1
        elif outcome.passed:
            test.passed += 1
        else:
            test.failed += 1
            test.why, test.failed_in = outcome.why, number


def rounds(folder: Path) -> list[Round]:
    """Return the rounds of a folder, the oldest first."""
    return [Round(path) for path in sorted(folder.glob("round-*"))]


def begin(folder: Path, suites: Iterable[str], count: int) -> Round:
    """Return the round to go on with: the newest one if it lacks a suite, else a new one, the first of `count`."""
    known = rounds(folder)
    if known and not all(known[-1].was_played(suite) for suite in suites):
        return known[-1]
    number = known[-1].number + 1 if known else 1
    return following(folder, number, number + count - 1)


def following(folder: Path, number: int, last: int) -> Round:
    """Make the folder of a round."""
    round_folder = folder / f"round-{number:04}"
    round_folder.mkdir(parents=True)
    (round_folder / _LAST).write_text(str(last), encoding="ascii")
    return Round(round_folder)


def record(folder: Path, listed: Sequence[Quarantined]) -> Record:
    """Count the passes of every test over all rounds."""
    counts, known = _Counts(), rounds(folder)
    for one in known:
        for outcome in one.outcomes():
            counts.add(one.number, outcome)
    played = [test for test in counts.tests.values() if test.passed or test.failed]
    for test in played:
        test.is_quarantined = is_listed(test.id, listed)
    played.sort(key=lambda test: (test.percent, -test.failed, test.id))
    return Record([one.number for one in known], played, len(counts.tests) - len(played))


def durations(folder: Path) -> dict[str, float]:
    """Return the mean seconds of every suite that was ever played."""
    took: dict[str, list[float]] = {}
    for one in rounds(folder):
        for suite in one.suites():
            took.setdefault(suite, []).append(junit.seconds(one.whole(suite)))
    return {suite: fmean(seconds) for suite, seconds in took.items()}


def _read(file: Path) -> list[Outcome]:
    try:
        return junit.read(file)
    except ParseError as error:
        return [Outcome(f"{file.name}: can be read", False, str(error))]
