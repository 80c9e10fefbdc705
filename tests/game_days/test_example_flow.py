"""The example of a flow of one's own, run as its docstring says, on the rehearsal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gameday.history.events import StepEnded
from gameday.history.journal import read_history
from gameday.report.run_folder import load_run_folder
from gameday.values.results import Cleanliness, Step, StepOutcome
from tests.game_days.conftest import QUICK, Arena

EXAMPLE = Path(__file__).parents[2] / "examples/inject_await_alert.py"
pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(400)]


def test_the_example_awaits_the_alert_asks_nothing_else_and_leaves_nothing(clean_arena: Arena, tmp_path: Path) -> None:
    plan = tmp_path / "quick.yaml"
    YAML(typ="safe", pure=True).dump(QUICK, plan)
    played = subprocess.run(
        [sys.executable, EXAMPLE, plan, clean_arena.cluster.profile],
        cwd=tmp_path,
        env={**os.environ, **clean_arena.cluster.prefect_client},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
    )
    assert played.returncode == 0, played.stdout
    (folder,) = (tmp_path / "reports").iterdir()
    steps = {event.step: event.outcome for event in read_history(folder / "history.jsonl").of(StepEnded)}
    asked = {Step.BASELINE, Step.INJECT, Step.AWAIT_ALERT}
    assert steps == {step: StepOutcome.DONE if step in asked else StepOutcome.NOT_ASKED for step in Step}

    run = load_run_folder(folder)
    assert run.result.cleanliness is Cleanliness.CLEAN
    assert {verdict.check: str(verdict.status) for verdict in run.verdicts} == {
        "steady-state": "held",
        "fault-in": "held",
        "alert-fires": "held",
        "no-other-alerts": "held",
        "alert-resolves": "not asked",
        "taint-set": "not asked",
        "workload-canary": "not asked",
        "workload-resubmitted": "not asked",
        "workload-running": "not asked",
        "workload-return": "not asked",
        "remediation": "not asked",
        "qa": "not asked",
        "node-as-before": "held",
        "undo-proof": "held",
    }
    assert "Not asked" in (folder / "report.html").read_text(encoding="utf-8")
