"""The scripted cluster itself: snapshots, requests that are lost, doubled or the last ones, and its machines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gameday.checks.outcome import RunOutcome
from gameday.history.events import FaultInjected, TaintSeen
from gameday.reaper.reap import reap
from gameday.run.run import Run
from tests.support.scripted import game_day
from tests.support.scripted.cluster import ScriptedCluster, Snapshot
from tests.support.scripted.game_day import play, play_on, shipped
from tests.support.scripted.script import AgentScript, Away, Script
from tests.support.scripted.wire import Fate, Moment, OnRequest

PLAN = "gpu-fell-off-the-bus"


def killed(reports: Path, nth: int, method: str, ending: str) -> Snapshot:
    """Return the cluster that a run leaves which is killed after its nth request of this kind."""
    loaded = shipped(PLAN)
    cluster = ScriptedCluster(Script.as_expected(loaded.plan))
    left: list[Snapshot] = []

    def on_request(asked: str, path: str, moment: Moment) -> None:
        nonlocal nth
        if (asked, moment) == (method, "after") and path.endswith(ending):
            nth -= 1
            if not nth:
                left.append(cluster.snapshot())
                cluster.kill()

    cluster.on_request = on_request
    play_on(cluster, loaded, reports=reports)
    return left[0]


def reaped(snapshot: Snapshot, after: timedelta) -> ScriptedCluster:
    """Return the cluster some time later, after one visit of the reaper."""
    cluster = ScriptedCluster.from_snapshot(snapshot)
    cluster.clock.sleep(after.total_seconds())
    kubernetes = cluster.kubernetes("gameday-reaper")
    try:
        reap(kubernetes)
    finally:
        kubernetes.close()
    return cluster


def test_a_fault_whose_run_was_killed_leaves_by_itself_and_the_reaper_takes_the_rest(reports: Path) -> None:
    # The third pod of a run is its injector's, after the marker's and the sampler's.
    snapshot = killed(reports, 3, "POST", "/pods")
    alone = ScriptedCluster.from_snapshot(snapshot)
    alone.clock.sleep(1.0)
    assert [pod.rpartition("-")[2] for _, pod in alone.faults_in] == ["inject"]
    alone.clock.sleep(shipped(PLAN).plan.fault.hold.total_seconds())
    assert alone.faults_in == set()
    assert alone.left() != []
    assert reaped(snapshot, timedelta(minutes=20)).left() == []


def test_an_injector_that_was_killed_is_undone_by_a_second_agent(reports: Path) -> None:
    agents = {"inject": AgentScript(is_killed=True)}
    played = play(PLAN, lambda script: replace(script, agents=agents), reports=reports)
    assert played.history.of(FaultInjected)
    assert played.cluster.faults_in == set()
    assert played.cluster.left() == []


def first_of_each(fate: Fate, is_spared: Callable[[str, str], bool]) -> OnRequest:
    """Let this become of the first request of each kind, but of those that are spared."""
    known: set[tuple[str, str]] = set()

    def on_request(method: str, path: str, moment: Moment) -> Fate | None:
        is_new = moment == "before" and (method, path) not in known
        known.add((method, path))
        return fate if is_new and not is_spared(method, path) else None

    return on_request


@pytest.mark.parametrize(
    "on_request",
    [
        # Nobody asks again for a lease, whose run is refused, nor for an eviction, whose step ends as unknown.
        first_of_each("lost", lambda method, path: method == "POST" and path.endswith(("/leases", "/eviction"))),
        first_of_each("doubled", lambda method, path: method == "POST"),
    ],
    ids=["lost", "doubled"],
)
def test_a_run_bears_a_lost_and_a_doubled_answer(on_request: OnRequest, reports: Path) -> None:
    def prepare(cluster: ScriptedCluster) -> None:
        cluster.on_request = on_request

    played = play(PLAN, reports=reports, prepare=prepare)
    assert (played.outcome, played.not_held, played.cluster.left()) == (RunOutcome.PASSED, [], [])


def test_a_snapshot_is_not_changed_by_what_follows(reports: Path) -> None:
    cluster = ScriptedCluster(Script.as_expected(shipped(PLAN).plan))
    snapshot = cluster.snapshot()
    play_on(cluster, shipped(PLAN), reports=reports)
    again = ScriptedCluster.from_snapshot(snapshot)
    assert again.now() == snapshot.at
    assert again.world.lines == []
    assert play_on(again, shipped(PLAN), reports=reports).outcome is RunOutcome.PASSED


def test_a_run_goes_on_after_an_outage_of_the_api_server(reports: Path) -> None:
    # While the alert is awaited: the watches break, and the taint is seen when they are back. Its own time dates it.
    outage = Away("kubernetes", 6.6, 12.6)
    played = play(PLAN, lambda script: replace(script, away=(outage,), fires=(8.0,), notified=(8.1,)), reports=reports)
    assert (played.outcome, played.not_held, played.cluster.left()) == (RunOutcome.PASSED, [], [])
    (taint,) = [seen for seen in played.history.of(TaintSeen) if seen.present]
    began = played.history.records[0].at
    assert taint.dated
    assert (taint.dated.seen_at - began).total_seconds() > outage.until_s
    assert ((taint.dated.earliest - began).total_seconds(), (taint.at - began).total_seconds()) == (6.0, 7.0)


def test_a_fault_goes_with_a_node_that_is_taken_away(reports: Path) -> None:
    loaded = shipped(PLAN)
    cluster = ScriptedCluster(Script.as_expected(loaded.plan))

    def steps(run: Run) -> None:
        run.record.while_waiting(lambda: [cluster.remove_node(node) for node, _ in cluster.faults_in] and None)
        game_day.steps(run)

    played = play_on(cluster, loaded, reports=reports, act=steps)
    assert (played.outcome, played.cluster.faults_in) == (RunOutcome.ABORTED, set())
    # Nobody can look whether the fault is out of a node that is gone: its entry stays unknown, and with it the ledger.
    left = reaped(cluster.snapshot(), timedelta(minutes=20)).left()
    assert [one.partition("/")[0] for one in left] == ["configmaps"]
