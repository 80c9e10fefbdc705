"""The plans that the control plane's benchmarks play."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.control_plane import REPEATED, Figures, crowded
from gameday.faults.pods_in_steps import PodsInStepsParameters
from gameday.faults.registry import parameter_models
from gameday.plan.catalogue import control_plane_plans
from gameday.plan.load import load_plan


@pytest.mark.parametrize("figures", REPEATED.values(), ids=REPEATED)
def test_what_is_repeated_is_an_arm_of_a_shipped_plan(figures: Figures) -> None:
    loaded = load_plan(control_plane_plans()[figures.plan], parameter_models())
    assert figures.arm in {arm.name for arm in loaded.plan.arms.compare}


def test_the_crowded_plan_is_one_and_leaves_a_quarter_of_the_gpus(tmp_path: Path) -> None:
    written = crowded(control_plane_plans()["scheduling-dra"], 100, tmp_path)
    loaded = load_plan(written, parameter_models())
    fault = loaded.plan.fault
    assert isinstance(fault, PodsInStepsParameters)
    assert (sum(fault.steps), fault.rate) == (600, 1000)
