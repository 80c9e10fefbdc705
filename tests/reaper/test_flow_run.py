"""What Prefect's hooks ask of the reaper: what one flow run's process left, and nothing else."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gameday.cluster.kubernetes import Kubernetes
from gameday.ledger.entries import Header
from gameday.ledger.lease import CLUSTER_LEASE, Leases, node_lease
from gameday.ledger.ledger import Ledger, ledger_name, stored_ledgers
from gameday.reaper.reap import ReapResult, reap
from tests.ledger.test_leases import lapse
from tests.reaper.test_reap import LATER, GameDay
from tests.support.scripted.administrator import ScriptedWorld
from tests.support.world import NAMESPACE, unique


def carried(world: ScriptedWorld, runner: Kubernetes, flow_run: str, run_id: str | None = None) -> GameDay:
    """What a run leaves whose process was started for a flow run."""
    day = GameDay(world, runner)
    day.id = run_id or day.id
    day.leases = Leases(runner, day.id, lambda _: None)
    header = Header(run_id=day.id, plan="p", started=LATER, operator="ada", host="here", flow_run=flow_run)
    day.ledger = Ledger(runner, header)
    return day


def test_a_dead_flow_run_is_undone_and_its_leases_are_given_back(
    world: ScriptedWorld, runner: Kubernetes, reaper: Kubernetes
) -> None:
    day = carried(world, runner, "flow-1")
    day.lock(live=False)
    day.write()
    result = reap(reaper, flow_run="flow-1")
    assert {one.run_id for one in result.reaped} == {day.id}
    assert result.is_clean
    assert day.undone
    assert world.holders() == {}


def test_what_others_left_is_left_to_the_reaper(world: ScriptedWorld, runner: Kubernetes, reaper: Kubernetes) -> None:
    mine, others, nobodys = (carried(world, runner, "flow-1"), carried(world, runner, "flow-2"), unique("stray"))
    for day in (mine, others):
        day.leases.acquire(node_lease(day.node), timedelta(minutes=20))
        day.write()
    world.add_pod(f"gd-{nobodys}-inject", nobodys)
    assert reap(reaper, flow_run="flow-1").is_clean
    assert mine.undone
    assert others.untouched
    assert world.pods(nobodys) != []
    assert world.holders() == {node_lease(others.node): others.id}
    assert reap(reaper).is_clean
    assert others.undone


def test_while_another_run_lives_nothing_is_undone(
    world: ScriptedWorld, runner: Kubernetes, reaper: Kubernetes
) -> None:
    day, other = carried(world, runner, "flow-1"), GameDay(world, runner)
    day.write()
    other.leases.acquire(CLUSTER_LEASE)
    assert [held.holder for held in reap(reaper, observe_holder=False, flow_run="flow-1").alive] == [other.id]
    assert day.untouched
    other.leases.release()


def test_the_runs_of_a_dead_season_are_undone_together(
    world: ScriptedWorld, runner: Kubernetes, reaper: Kubernetes
) -> None:
    season = unique("season")
    Leases(runner, season, lambda _: None).acquire(CLUSTER_LEASE)
    lapse(world)
    runs = [carried(world, runner, "flow-1", f"{season}-{number}") for number in (1, 2)]
    for day in runs:
        day.write()
    result = reap(reaper, flow_run="flow-1")
    assert {one.run_id for one in result.reaped} == {day.id for day in runs}
    assert all(day.undone for day in runs)
    assert world.holders() == {}


def test_a_flow_run_that_left_nothing_costs_no_lease(
    reaper: Kubernetes, world: ScriptedWorld, runner: Kubernetes
) -> None:
    other = carried(world, runner, "flow-2")
    other.write()
    assert reap(reaper, flow_run="flow-1") == ReapResult()
    assert reaper.counter.cost().by_call == {"LIST pods": 1, "LIST configmaps": 1, "LIST leases": 1}
    assert other.untouched


@pytest.mark.parametrize("word", ['"newer":"than this reaper",', ""])
def test_a_newer_runs_ledger_is_reaped_by_an_older_reaper(
    world: ScriptedWorld, runner: Kubernetes, reaper: Kubernetes, word: str
) -> None:
    day = carried(world, runner, "flow-1")
    day.write()
    header = day.ledger.header.model_dump_json().replace("{", "{" + word, 1)
    world.core.patch_namespaced_config_map(ledger_name(day.id), NAMESPACE, {"data": {"run.json": header}})
    assert stored_ledgers(reaper).unreadable == ()
    assert reap(reaper).is_clean
    assert day.undone
