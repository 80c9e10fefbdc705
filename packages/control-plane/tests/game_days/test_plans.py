"""Every shipped plan of the control plane, played whole on a lab of its own; `make test-control-plane` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.plan.catalogue import package_plans
from tests.support.control_plane_game_day import play_on_a_lab


@pytest.mark.control_plane
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", sorted(package_plans()))
def test_a_plan_holds_its_negative_controls_break_and_nothing_is_left(tmp_path: Path, name: str) -> None:
    played = play_on_a_lab(tmp_path, package_plans()[name])
    assert played.code == 0, played.output
    assert played.left == []
