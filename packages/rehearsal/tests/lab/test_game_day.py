"""Whole game-days on the real control plane, also while parts of it die."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from ruamel.yaml import YAML

from gameday.shipped import checkout
from gameday.values.results import Step
from tests.game_days.conftest import QUICK, Arena, patient, send, step_started
from tests.rehearsal.lab.conftest import quick_where_training_runs

pytestmark = [pytest.mark.lab, pytest.mark.gameday, pytest.mark.timeout(400), pytest.mark.usefixtures("settled")]
PLANS = checkout() / "plans"
# One of each kind of ending; what only alert rules' own windows make longer runs on the embedded control plane.
SHIPPED = ("gpu-fell-off-the-bus", "xid-48-double-bit-ecc", "xid-94-contained-ecc", "sxid-20034-link-fault")


def components(arena: Arena) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads((arena.cluster.folder / "control-plane/components.json").read_text())
    return found


def kill(arena: Arena, *names: str) -> Callable[[object], None]:
    def blow(_: object) -> None:
        running = components(arena)
        for name in names:
            os.kill(running[name]["pid"], signal.SIGKILL)

    return blow


@pytest.mark.parametrize("plan", SHIPPED)
def test_a_shipped_plan_holds(clean_arena: Arena, plan: str) -> None:
    played = clean_arena.play(YAML(typ="safe", pure=True).load((PLANS / f"{plan}.yaml").read_text()))
    assert played.exit_code == 0, played.output
    assert set(played.verdicts().values()) == {"held"}


@pytest.mark.parametrize(
    "names", [("etcd",), ("kube-apiserver",), ("kube-controller-manager", "kube-scheduler")], ids=" and ".join
)
def test_components_killed_during_the_wait_come_back_and_the_game_day_with_them(
    clean_arena: Arena, names: tuple[str, ...]
) -> None:
    before = components(clean_arena)
    plan = patient(quick_where_training_runs(clean_arena))
    played = clean_arena.play_and_when(plan, step_started(Step.AWAIT_ALERT), kill(clean_arena, *names))
    after = components(clean_arena)
    assert {name: after[name]["restarts"] - before[name]["restarts"] for name in names} == dict.fromkeys(names, 1)
    assert played.exit_code == 0, played.output
    assert played.result.cleanliness == "clean"


@pytest.mark.parametrize("step", [step for step in Step if step is not Step.AWAIT_ALERT])
def test_the_api_server_killed_in_any_step_leaves_nothing_behind(clean_arena: Arena, step: Step) -> None:
    """The wait for the alert has the test above."""
    played = clean_arena.play_and_when(QUICK, step_started(step), kill(clean_arena, "kube-apiserver"))
    # A bound may be missed: controllers that lost their API server come back to it only after a back-off of theirs.
    assert played.exit_code in (0, 1, 2, 5), played.output
    assert played.result.cleanliness == "clean"


def test_ctrl_c_undoes_the_run_and_reports_it(clean_arena: Arena) -> None:
    played = clean_arena.play_and_when(QUICK, step_started(Step.AWAIT_ALERT), send(signal.SIGINT))
    assert played.exit_code == 3, played.output
    assert played.result.cleanliness == "clean"
