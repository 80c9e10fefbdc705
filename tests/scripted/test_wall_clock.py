"""A run whose machine's wall clock is set while it runs: it ends as ever, and judges no time by that clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from gameday.checks.outcome import RunOutcome
from gameday.checks.verdict import Status
from gameday.values.results import Cleanliness
from tests.support.scripted.cluster import ScriptedCluster
from tests.support.scripted.game_day import Played, play
from tests.support.scripted.plans import QUICK, changed, loaded, without_repair
from tests.support.scripted.script import NodeChange, Script

QUIET = {"stays_schedulable_for": "10s", "allow_other_alerts": True, "forbidden_severities": ["critical"]}
TAINTED = NodeChange({"spec": {"taints": [{"key": "example.com/faulty", "effect": "NoSchedule"}]}}, after_s=0.5)


def played(reports: Path, by_s: float, *, at_s: float = 3.0, quiet: bool = False) -> Played:
    """Play a game-day whose clock is set before the fault; a quiet plan's fault costs the node its place."""
    plan = changed(without_repair({"type": "xid", "xid": 13}), "expect", QUIET) if quiet else QUICK

    def prepare(cluster: ScriptedCluster) -> None:
        cluster.clock.at(at_s, partial(cluster.clock.jump, timedelta(seconds=by_s)))
        cluster.clock.sleep(1.0)

    def alarms(script: Script) -> Script:
        return replace(script, alerts=(("GPUXidCritical", {}),), changes=(TAINTED,)) if quiet else script

    return play(loaded(plan), alarms, reports=reports, prepare=prepare)


@pytest.mark.parametrize("by_s", [-0.9, 0.9])
def test_a_second_is_nothing(by_s: float, reports: Path) -> None:
    found = played(reports, by_s)
    assert (found.outcome, found.not_held, found.cluster.left()) == (RunOutcome.PASSED, [], [])


@pytest.mark.parametrize("by_s", [-3600.0, -159.0, 2465.0, 3600.0])
def test_a_time_by_a_clock_that_was_set_is_unknown_and_the_undo_is_done(by_s: float, reports: Path) -> None:
    found = played(reports, by_s)
    assert (found.outcome, found.result.cleanliness) == (RunOutcome.UNKNOWN, Cleanliness.CLEAN)
    assert {found.status(name) for name in ("alert-fires", "taint-set")} == {Status.UNKNOWN}
    assert found.status("qa") is Status.HELD
    assert found.cluster.left() == []


@pytest.mark.parametrize("at_s", [0.5, 3.0], ids=["before the run", "in the run"])
@pytest.mark.parametrize("by_s", [-159.0, 2465.0])
def test_nothing_is_called_absent_by_a_wrong_clock(by_s: float, at_s: float, reports: Path) -> None:
    found = played(reports, by_s, at_s=at_s, quiet=True)
    assert found.status("forbidden-severities") is not Status.HELD
    assert found.status("stays-schedulable") is not Status.HELD
