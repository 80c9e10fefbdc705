"""Two game-days at once from two machines whose clocks disagree by hours: exactly one injects."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gameday.history.events import FaultInjected, RunStarted, StepStarted
from gameday.history.journal import read_history
from gameday.values.results import Step
from tests.torture.lanes import ROOT, Lane
from tests.torture.matrix import PLANS

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(600)]
PATIENCE_S = 240.0


class Machine:
    """`gameday run` of one person, on a computer of their own."""

    def __init__(self, lane: Lane, home: Path, name: str, hours: float) -> None:
        self.reports = home / name
        plan = home / f"{name}.yaml"
        with plan.open("w", encoding="utf-8") as out:
            YAML(typ="safe", pure=True).dump({**PLANS["persistence_off"], "targets": {"names": [lane.node]}}, out)
        argv = [sys.executable, "-m", "tests.torture.skewed", str(hours), name, "run", str(plan)]
        self.process = subprocess.Popen(
            [*argv, "--profile", str(lane.profile), "--reports", str(self.reports)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env=lane.environment(),
            cwd=ROOT,
            start_new_session=True,
        )

    def ended(self) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, output

    def injected(self) -> int:
        return sum(len(read_history(path).of(FaultInjected)) for path in self.reports.glob("*/history.jsonl"))

    def reaches(self, step: Step) -> None:
        def there() -> bool:
            found = self.reports.glob("*/history.jsonl")
            return any(e.step is step for path in found for e in read_history(path).of(StepStarted))

        until(there)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(("hours", "others"), [(0, 0), (3, -3), (-3, 3)])
def test_exactly_one_of_two_injects(lane: Lane, tmp_path: Path, hours: float, others: float) -> None:
    machines = [Machine(lane, tmp_path, "ada", hours), Machine(lane, tmp_path, "grace", others)]
    ends = [machine.ended() for machine in machines]
    assert sorted(machine.injected() for machine in machines) == [0, 1], ends
    (refused,) = [output for code, output in ends if code == 5]
    assert "is held by run" in refused


@pytest.mark.parametrize("hours", [3, -3])
def test_a_dead_runs_place_is_taken_whatever_its_clock_said(lane: Lane, tmp_path: Path, hours: float) -> None:
    """Reaped first: the dead one's fault is out before the next one's goes in."""
    dead = Machine(lane, tmp_path, "ada", hours)
    dead.reaches(Step.AWAIT_ALERT)
    os.kill(dead.process.pid, signal.SIGKILL)
    dead.ended()
    if hours > 0:
        # Its lease looks alive for hours to come: that is refused, and never believed by the reaper.
        code, output = Machine(lane, tmp_path, "grace", 0).ended()
        assert (code, "gameday reap" in output) == (5, True), output
        assert lane.reap().is_clean
    heir = Machine(lane, tmp_path, "edsger", 0)
    code, output = heir.ended()
    assert (code, heir.injected()) == (0, 1), output
    assert len([p for p in heir.reports.glob("*/history.jsonl") if read_history(p).of(RunStarted)]) == 1
