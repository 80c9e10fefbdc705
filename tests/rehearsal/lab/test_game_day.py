"""Whole game-days on the real control plane."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gameday.values.results import Step
from tests.game_days.conftest import QUICK, Arena, send, step_started

pytestmark = [pytest.mark.lab, pytest.mark.gameday, pytest.mark.timeout(400), pytest.mark.usefixtures("settled")]
PLANS = Path(__file__).parents[3] / "plans"
# One of each kind of ending; what only alert rules' own windows make longer runs on the embedded control plane.
SHIPPED = ("gpu-fell-off-the-bus", "xid-48-double-bit-ecc", "xid-94-contained-ecc", "sxid-20034-link-fault")


@pytest.mark.parametrize("plan", SHIPPED)
def test_a_shipped_plan_holds(clean_arena: Arena, plan: str) -> None:
    played = clean_arena.play(YAML(typ="safe", pure=True).load((PLANS / f"{plan}.yaml").read_text()))
    assert played.exit_code == 0, played.output
    assert set(played.verdicts().values()) == {"held"}


def test_ctrl_c_undoes_the_run_and_reports_it(clean_arena: Arena) -> None:
    played = clean_arena.play_and_when(QUICK, step_started(Step.AWAIT_ALERT), send(signal.SIGINT))
    assert played.exit_code == 3, played.output
    assert played.result.cleanliness == "clean"
