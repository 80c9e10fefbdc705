"""The plug-in of `make test`: it plays one of several parts of the test files, and limits each test's processor time.

Each part is a process of its own, and collects only its own files: to import and collect all of them takes longer than
to play a fifth of them.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml
from hypothesis import settings

TESTS = Path(__file__).resolve().parents[1]
RECORDED = TESTS / "seconds.txt"
"""Lines of seconds and a test file; `--record-seconds` writes them."""
NOT_RECORDED_S = 0.2
"""For a file that is new, or whose tests are all slow: about what its import takes."""
LIMIT_S = 5.0
"""Seconds of processor time, which a busy machine hardly stretches; no test here takes half of it."""

_seconds: defaultdict[str, float] = defaultdict(float)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", default="1/1", metavar="K/N", help="play the K-th of N parts of the test files")
    parser.addoption("--record-seconds", action="store_true", help=f"write {RECORDED.name} after the tests")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_PART] = part_of(config.getoption("--part"))
    # Without this plug-in, as in the nightly, Hypothesis makes its usual 100 examples of each test.
    settings.register_profile("fast", settings.get_profile("busy"), max_examples=25)
    settings.load_profile("fast")
    # PyYAML's loader in C, for the kubeconfig that each of thousands of clients reads.
    yaml.safe_load = partial(yaml.load, Loader=yaml.CSafeLoader)


def files_of_tests() -> list[Path]:
    """Return every file of tests, also those of the packages, which `tests` has links to."""
    below = [(Path(folder), names) for folder, _, names in os.walk(TESTS, followlinks=True)]
    return sorted(folder / name for folder, names in below for name in names if re.fullmatch(r"test_.*\.py", name))


def part_of(part: str) -> set[Path]:
    """Return the test files of a part: neighbours, which share imports, and of about the same seconds in every part."""
    number, parts = map(int, part.split("/"))
    seconds = dict(reversed(line.split()) for line in RECORDED.read_text(encoding="utf-8").splitlines())
    files = files_of_tests()
    weights = [float(seconds.get(_name(file), NOT_RECORDED_S)) for file in files]
    total, before, found = sum(weights), 0.0, set()
    for file, weight in zip(files, weights, strict=True):
        middle = before + weight / 2
        before += weight
        if int(middle / total * parts) == number - 1:
            found.add(file)
    return found


_PART = pytest.StashKey[set[Path]]()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_test_file = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return True if is_test_file and collection_path not in config.stash[_PART] else None


@pytest.fixture(autouse=True)
def processor_time() -> Iterator[None]:
    """Fail a test that takes too much processor time, with that of the processes that it ended.

    The servers of a session or a module are not counted: this fixture begins after theirs and ends before them.
    """
    before = _processor_s()
    yield
    used = _processor_s() - before
    assert used <= LIMIT_S, f"{used:.1f} s of processor time; a test in `make test` may take {LIMIT_S:.0f} s"


def _processor_s() -> float:
    return sum(os.times()[:4])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid.partition("::")[0]] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--record-seconds"):
        lines = [f"{seconds:.2f} {name}\n" for name, seconds in sorted(_seconds.items())]
        RECORDED.write_text("".join(lines), encoding="utf-8")


def _name(file: Path) -> str:
    return file.relative_to(TESTS.parent).as_posix()
