"""The GPUs of this machine, or the reason to skip; and the page that says what was seen of them.

Nothing here changes a GPU's settings unless the environment variable GAMEDAY_TEST_GPU_MAY allows it.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gameday import __version__
from gameday.errors import HostError
from gameday.host.base import GpuSample
from gameday.host.real import RealHost
from tests.gpu.judging import OTHERS, why_not_at_rest

PAGE = Path("reports/metal.md")
"""The page, in the folder that `make` starts pytest in."""
MAY = "GAMEDAY_TEST_GPU_MAY"
"""The environment variable that allows more than reading and load: `change`, `reset`, or both with a comma."""
REST_S = 60
"""Longest time for which a GPU may come to rest before a test; recorded: two seconds after a full burn."""
WANTED_S = 360
"""Time for all tests together, on one GPU: who lends a GPU for a test lends it for minutes."""
_OUTCOMES = {"passed": "held", "failed": "**did not hold**", "skipped": "not run"}
_BEGAN = time.monotonic()
_outcomes: dict[str, tuple[str, str, float, list[str]]] = {}

Note = Callable[[str], None]
"""A function that puts a line into the page, beside the test's result."""


@pytest.fixture(scope="session")
def host() -> RealHost:
    return RealHost()


@pytest.fixture(scope="session")
def gpus(host: RealHost) -> list[GpuSample]:
    """All GPUs of this machine; without one the test is skipped."""
    try:
        found = host.gpus()
    except HostError as error:
        pytest.skip(f"no GPU: {error}")
    if not found:
        pytest.skip("no GPU: NVML counts none")
    return found


@pytest.fixture(scope="session")
def start(gpus: list[GpuSample]) -> GpuSample:
    """The first GPU that answers, as it was before the first test."""
    for sample in gpus:
        if not sample.lost:
            return sample
    pytest.skip("every GPU of this machine is lost")


@pytest.fixture
def gpu(start: GpuSample, host: RealHost) -> Iterator[GpuSample]:
    """That GPU as it is now: as idle as before the first test, in any order of the tests.

    What the test has left on it is ended.
    """
    why = ["it was not looked at"]

    def is_at_rest() -> bool:
        why[0] = why_not_at_rest(now(host, start), start)
        return not why[0]

    if not until(is_at_rest, REST_S):
        pytest.fail(f"GPU {start.index} is not as idle as before the first test: {why[0]}. Stop other work on it")
    yield now(host, start)
    host.end_work(start.index)
    assert not host.has_work(start.index)


@pytest.fixture(scope="session")
def cupy(gpus: list[GpuSample]) -> None:
    """Skip a test without CuPy. It is imported in other processes only: a CUDA context here would be in every test."""
    if find_spec("cupy") is None:
        pytest.skip("CuPy is not installed: `make test-gpu` installs requirements-gpu.lock")


@pytest.fixture
def root(gpus: list[GpuSample]) -> None:
    if os.geteuid() != 0:
        pytest.skip("this needs root")


@pytest.fixture
def may(gpus: list[GpuSample]) -> Callable[[str], None]:
    """Return a function that skips the test unless GAMEDAY_TEST_GPU_MAY allows something."""

    def require(what: str) -> None:
        if what not in os.environ.get(MAY, "").split(","):
            pytest.skip(f"not allowed: make test-gpu MAY={what}")

    return require


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Note:
    def add(line: str) -> None:
        request.node.user_properties.append(("note", line))

    return add


def now(host: RealHost, gpu: GpuSample) -> GpuSample:
    return next(sample for sample in host.gpus() if sample.index == gpu.index)


def assert_given_back(host: RealHost, gpu: GpuSample) -> None:
    """Assert that the GPU's memory is as free as it was."""
    before = gpu.memory_used_bytes or 0
    assert until(lambda: (now(host, gpu).memory_used_bytes or 0) <= before + OTHERS, 30)


def until(condition: Callable[[], bool], within_s: float, every_s: float = 0.25) -> bool:
    """Wait until a condition is true; return False when the time is up."""
    deadline, pause = time.monotonic() + within_s, threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            return False
        pause.wait(every_s)
    return True


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "tests/gpu/" not in report.nodeid or (report.when != "call" and report.passed):
        return
    name = report.nodeid.split("::", 1)[1].removeprefix("test_").replace("_", " ")
    crash = getattr(report.longrepr, "reprcrash", None)
    why = [report.longrepr[2].removeprefix("Skipped: ")] if isinstance(report.longrepr, tuple) else []
    why += crash.message.splitlines()[:1] if crash else []
    seen = [str(text) for key, text in report.user_properties if key == "note"]
    module = Path(report.fspath).stem.removeprefix("test_")
    _outcomes[report.nodeid] = (f"{module}: {name}", report.outcome, report.duration, [*seen, *why])
    if not report.skipped:  # after each test: the machine may be taken back at any moment
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(_page(), encoding="utf-8")


@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None]:
    yield
    if not _outcomes:
        return
    if all(outcome == "skipped" for _, outcome, _, _ in _outcomes.values()):
        (why, *_) = [lines[-1] for *_, lines in _outcomes.values()]
        terminalreporter.write_line(f"Nothing was run on metal: {why}")
        return
    terminalreporter.write_line(f"What was seen on metal: {PAGE}")


def _page() -> str:
    """Return the page as Markdown: the machine, and each test with what it saw."""
    driver = Path("/proc/driver/nvidia/version")
    lines = [
        "# On metal",
        "",
        f"gpu-gameday {__version__}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, kernel {platform.release()}, "
        f"Python {platform.python_version()}.",
        f"Driver: {driver.read_text().splitlines()[0] if driver.exists() else 'not in /proc'}.",
        "",
        f"{time.monotonic() - _BEGAN:.0f} s until here, of {WANTED_S} that all tests should take on one GPU.",
        "",
        "| test | result | s | seen |",
        "|---|---|---|---|",
    ]
    for name, outcome, seconds, seen in _outcomes.values():
        cells = [name, _OUTCOMES[outcome], f"{seconds:.0f}", "<br>".join(line.replace("|", "\\|") for line in seen)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])
