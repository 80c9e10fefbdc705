"""A dangerous fault is refused before anything is changed where the cluster does not allow it, or cannot bear it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gameday.detectors.resolve import load_complete_plan
from gameday.errors import RefusedError
from gameday.lifecycle.opening import _check_dangers
from gameday.plan.catalogue import package_plans
from gameday.plan.models import Plan

LOADED = load_complete_plan(package_plans()["webhook-gone"], ())


def arm(name: str) -> Plan:
    return LOADED.of_arm(name).plan


def profile(**changes: Any) -> Any:
    kept = {"name": "c", "namespace": "gameday", "allow_dangerous": ("webhook_unreachable",), "lab_control": None}
    return SimpleNamespace(**kept | changes)


def test_a_real_cluster_that_allows_it_takes_the_narrow_arms_only() -> None:
    for name in ("fail", "ignore"):
        _check_dangers(arm(name), profile())
    with pytest.raises(RefusedError, match="this cluster is no lab"):
        _check_dangers(arm("everything"), profile())
    _check_dangers(arm("everything"), profile(lab_control=Path("lab.sock")))


def test_nobody_else_takes_it() -> None:
    with pytest.raises(RefusedError, match="does not allow the dangerous fault webhook_unreachable"):
        _check_dangers(arm("fail"), profile(allow_dangerous=()))


def test_a_game_day_that_lives_in_the_matched_namespace_is_refused() -> None:
    with pytest.raises(RefusedError, match="the ledger and the Leases of the game-day itself, in gameday-load"):
        _check_dangers(arm("fail"), profile(namespace="gameday-load", lab_control=Path("lab.sock")))
