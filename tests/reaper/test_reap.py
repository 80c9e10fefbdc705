"""The reaper undoes the entries of dead runs, leaves those of living ones, and reports those it cannot read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from gameday.cluster.kubernetes import Kubernetes
from gameday.errors import LeaseHeldError
from gameday.history.events import FaultUndone, Problem
from gameday.history.journal import read_history
from gameday.ledger.entries import DeletePod, Header, RestoreNode, TakeOutFault
from gameday.ledger.lease import CLUSTER_LEASE, Leases, node_lease
from gameday.ledger.ledger import Ledger, ledger_name, stored_ledgers
from gameday.reaper.histories import reap_season_member
from gameday.reaper.reap import ReapResult, reap, reap_run, reap_under
from gameday.run.record import HISTORY_FILE, start_record
from gameday.values.nodes import Taint
from gameday.values.results import Cleanliness
from tests.ledger.test_leases import intercept, lapse
from tests.support.runs import quick_plan
from tests.support.scripted.administrator import ScriptedWorld
from tests.support.world import NAMESPACE, unique

LATER = datetime(2030, 1, 2, tzinfo=UTC)
TAINT = Taint(key="trainy.konduktor.ai/faulty", value="true", effect="NoSchedule")


class GameDay:
    """What a run leaves in the cluster: its ledger, its leases, a tainted node, and a pod nobody runs."""

    def __init__(self, world: ScriptedWorld, runner: Kubernetes) -> None:
        self.world = world
        self.id = unique("run")
        self.node = world.add_node(taints=[TAINT.model_dump()])
        self.leases = Leases(runner, self.id, lambda _: None)
        header = Header(run_id=self.id, plan="p", started=LATER, operator="ada", host="here")
        self.ledger = Ledger(runner, header)

    def lock(self, *, live: bool = True) -> None:
        self.leases.acquire(CLUSTER_LEASE)
        self.leases.acquire(node_lease(self.node), timedelta(minutes=20))
        if not live:
            lapse(self.world)

    def write(self) -> None:
        restore = RestoreNode(keys=(TAINT.key,), unschedulable=False)
        intend = self.ledger.intend
        intend(id="quarantine", act="quarantine", node=self.node, undo=restore, expires=LATER, defer_write=True)
        pod = f"gd-{self.id}-canary"
        intend(id="canary", act="canary", node=self.node, undo=DeletePod(pod=pod), expires=LATER)
        self.world.add_pod(pod, self.id)

    @property
    def tainted(self) -> bool:
        return bool(self.world.taints(self.node))

    @property
    def untouched(self) -> bool:
        return self.tainted and self.world.pods(self.id) != [] and ledger_name(self.id) in self.world.ledgers()

    @property
    def undone(self) -> bool:
        return not self.tainted and self.world.pods(self.id) == [] and ledger_name(self.id) not in self.world.ledgers()


@pytest.fixture
def dead(world: ScriptedWorld, runner: Kubernetes) -> GameDay:
    day = GameDay(world, runner)
    day.lock(live=False)
    day.write()
    return day


@pytest.fixture
def living(world: ScriptedWorld, runner: Kubernetes) -> Iterator[GameDay]:
    day = GameDay(world, runner)
    day.lock()
    day.write()
    yield day
    day.leases.release()


def test_a_dead_run_is_undone_newest_first(world: ScriptedWorld, reaper: Kubernetes, dead: GameDay) -> None:
    result = reap(reaper)
    assert [(one.run_id, one.entry.id) for one in result.reaped] == [(dead.id, "canary"), (dead.id, "quarantine")]
    assert result.is_clean
    assert dead.undone
    assert world.holders() == {}


def test_reaping_twice_changes_nothing_more(reaper: Kubernetes, dead: GameDay) -> None:
    assert reap(reaper).reaped
    again = reap(reaper)
    assert (again.reaped, again.alive, again.unreadable) == ((), (), ())
    assert again.is_clean


def test_nothing_to_reap_costs_three_requests(reaper: Kubernetes, world: ScriptedWorld) -> None:
    assert reap(reaper).is_clean
    assert reaper.counter.cost().by_call == {"LIST pods": 1, "LIST configmaps": 1, "LIST leases": 1}


def test_a_living_run_is_left_alone(world: ScriptedWorld, reaper: Kubernetes, living: GameDay) -> None:
    living.leases.keep_renewing()
    result = reap(reaper, observe_holder=False)
    assert result.reaped == ()
    assert [held.holder for held in result.alive] == [living.id]
    assert living.untouched
    assert world.holders() == {CLUSTER_LEASE: living.id, node_lease(living.node): living.id}


def test_a_ledger_without_any_lease_is_a_dead_runs(
    world: ScriptedWorld, runner: Kubernetes, reaper: Kubernetes
) -> None:
    day = GameDay(world, runner)
    day.write()
    assert reap(reaper).is_clean
    assert day.undone


def test_a_live_lease_on_a_node_alone_makes_no_run_a_living_one(
    world: ScriptedWorld, runner: Kubernetes, reaper: Kubernetes
) -> None:
    day = GameDay(world, runner)
    day.leases.acquire(node_lease(day.node), timedelta(minutes=20))
    day.write()
    assert reap(reaper).is_clean
    assert day.undone
    assert world.holders() == {}


def test_the_dead_wait_while_another_lives(
    world: ScriptedWorld, runner: Kubernetes, reaper: Kubernetes, dead: GameDay
) -> None:
    """The dead one's cluster lease was taken over: its name and uid are the living one's now."""
    taker = GameDay(world, runner)
    taker.leases.acquire(CLUSTER_LEASE)
    taker.write()
    result = reap(reaper, observe_holder=False)
    assert result.reaped == ()
    assert [held.holder for held in result.alive] == [taker.id]
    assert dead.untouched
    taker.leases.release()


def test_a_run_reaps_the_dead_under_its_own_lease_and_leaves_itself_alone(
    world: ScriptedWorld, runner: Kubernetes, dead: GameDay
) -> None:
    taker = GameDay(world, runner)
    taker.leases.acquire(CLUSTER_LEASE)
    taker.write()
    result = reap_under(runner, taker.id)
    assert {one.run_id for one in result.reaped} == {dead.id}
    assert dead.undone
    assert taker.untouched
    assert world.holders() == {CLUSTER_LEASE: taker.id}
    taker.leases.release()


def test_no_run_begins_while_something_is_reaped(
    runner: Kubernetes, reaper: Kubernetes, dead: GameDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = reaper.core.patch_node
    refused: list[str] = []

    def meanwhile(*arguments: Any, **options: Any) -> Any:
        with pytest.raises(LeaseHeldError) as caught:
            Leases(runner, "early", lambda _: None).acquire(CLUSTER_LEASE)
        refused.append(caught.value.holder)
        return patch(*arguments, **options)

    monkeypatch.setattr(reaper.core, "patch_node", meanwhile)
    assert reap(reaper).is_clean
    assert [holder.startswith("reaper-") for holder in refused] == [True]
    assert dead.undone


def test_a_reaper_whose_lease_is_gone_stops(reaper: Kubernetes, dead: GameDay) -> None:
    assert reap_under(reaper, "reaper-1", ["run x took the cluster lease over"]).reaped == ()
    assert dead.untouched


def test_a_reaper_that_loses_its_lease_while_it_works_leaves_the_rest_to_the_one_that_took_it(
    world: ScriptedWorld, reaper: Kubernetes, dead: GameDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = reaper.delete_pod

    def taken_over(name: str) -> str | None:
        world.coordination.patch_namespaced_lease(CLUSTER_LEASE, NAMESPACE, {"spec": {"holderIdentity": "run-x"}})
        world.clock.sleep(reaper.profile.lease_duration_s)
        return delete(name)

    monkeypatch.setattr(reaper, "delete_pod", taken_over)
    assert [one.entry.id for one in reap(reaper).reaped] == ["canary"]
    assert dead.tainted
    assert world.holders()[CLUSTER_LEASE] == "run-x"


def test_a_reapers_lease_lasts_as_long_as_the_clusters_profile_says(
    world: ScriptedWorld, reaper: Kubernetes, dead: GameDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    reaper.profile = reaper.profile.model_copy(update={"lease_duration_s": 77})
    delete, lasts = reaper.delete_pod, list[int]()

    def deleted(name: str) -> str | None:
        lasts.append(world.coordination.read_namespaced_lease(CLUSTER_LEASE, NAMESPACE).spec.lease_duration_seconds)
        return delete(name)

    monkeypatch.setattr(reaper, "delete_pod", deleted)
    assert reap(reaper).is_clean
    assert lasts == [77]


def test_leases_of_a_run_that_died_before_it_wrote_anything_are_given_back(
    world: ScriptedWorld, runner: Kubernetes, reaper: Kubernetes
) -> None:
    GameDay(world, runner).lock(live=False)
    assert reap(reaper) == ReapResult()
    assert world.holders() == {}


def test_leases_of_others_are_left_alone(world: ScriptedWorld, reaper: Kubernetes, dead: GameDay) -> None:
    spec = {"holderIdentity": "controller-7"}
    world.coordination.create_namespaced_lease(NAMESPACE, {"metadata": {"name": "a-controllers"}, "spec": spec})
    assert reap(reaper).is_clean
    assert world.holders() == {"a-controllers": "controller-7"}
    world.coordination.delete_namespaced_lease("a-controllers", NAMESPACE)


def test_a_pod_that_came_after_its_ledger_had_gone_is_deleted(world: ScriptedWorld, reaper: Kubernetes) -> None:
    late = unique("late")
    world.add_pod(f"gd-{late}-inject", late)
    result = reap(reaper)
    assert [(one.run_id, one.entry.object) for one in result.reaped] == [(late, f"pod/gd-{late}-inject")]
    assert result.is_clean
    assert world.pods(late) == []


def test_a_run_that_begins_after_the_first_look_is_left_alone(
    world: ScriptedWorld, runner: Kubernetes, reaper: Kubernetes, dead: GameDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = GameDay(world, runner)

    def begun(list_leases: Callable[[], Any]) -> Any:
        monkeypatch.undo()
        found = list_leases()
        day.leases.acquire(CLUSTER_LEASE)
        day.write()
        return found

    intercept(monkeypatch, "GET", begun)
    result = reap(reaper, observe_holder=False)
    assert result.reaped == ()
    assert [held.holder for held in result.alive] == [day.id]
    assert day.untouched
    assert dead.untouched
    day.leases.release()


def test_dirty_entries_are_kept_and_reported_every_time(
    world: ScriptedWorld, reaper: Kubernetes, dead: GameDay
) -> None:
    entry = dead.ledger.open_entries()[0]
    dead.ledger.settle(entry, Cleanliness.DIRTY, "flow", ["the taint came back"])
    for expected in (["canary", "quarantine"], ["canary"]):
        result = reap(reaper)
        assert [one.entry.id for one in result.reaped] == expected
        assert result.reaped[0].cleanliness is Cleanliness.DIRTY
        assert result.reaped[0].evidence == ("the taint came back",)
        assert not result.is_clean
        assert world.ledgers() == [ledger_name(dead.id)]
    assert not dead.tainted
    assert world.holders() == {}


def test_a_node_whose_fault_is_still_in_keeps_its_quarantine(reaper: Kubernetes, dead: GameDay) -> None:
    undo = TakeOutFault(pod=f"gd-{dead.id}-inject", gpu=0, fault={"type": "power_cap", "watts": 300})
    fault = dead.ledger.intend(id="inject", act="inject", node=dead.node, undo=undo, expires=LATER)
    dead.ledger.settle(fault, Cleanliness.DIRTY, "flow", ["the power limit is still 300 W"])
    for found in ({"inject", "quarantine", "canary"}, {"inject", "quarantine"}):
        result = reap(reaper)
        assert {one.entry.id for one in result.reaped} == found
        dirty = {one.entry.id for one in result.reaped if one.cleanliness is Cleanliness.DIRTY}
        assert dirty == {"inject", "quarantine"}
        assert dead.tainted
    assert result.dirty_nodes.keys() == {dead.node}


def test_unknown_entries_are_tried_again(
    world: ScriptedWorld, reaper: Kubernetes, dead: GameDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = reaper.core.patch_node
    monkeypatch.setattr(reaper.core, "patch_node", away)
    first = reap(reaper)
    assert not first.is_clean
    assert [one.cleanliness for one in first.reaped] == [Cleanliness.CLEAN, Cleanliness.UNKNOWN]
    assert ledger_name(dead.id) in world.ledgers()
    monkeypatch.setattr(reaper.core, "patch_node", patch)
    second = reap(reaper)
    assert [one.entry.id for one in second.reaped] == ["quarantine"]
    assert second.is_clean
    assert dead.undone


def away(*_: Any, **__: Any) -> Any:
    raise ApiException(status=500, reason="etcd is away")


def test_what_cannot_be_noted_is_unknown_and_the_rest_is_undone(
    world: ScriptedWorld, reaper: Kubernetes, dead: GameDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaper.core, "patch_namespaced_config_map", away)
    result = reap(reaper)
    assert [(one.run_id, one.entry.id) for one in result.reaped] == [(dead.id, "canary"), (dead.id, "quarantine")]
    assert [one.cleanliness for one in result.reaped] == [Cleanliness.UNKNOWN, Cleanliness.UNKNOWN]
    assert "500 etcd is away" in result.reaped[0].evidence[-1]
    assert not dead.tainted


@pytest.mark.parametrize("data", [None, {}, {"run.json": "no json"}, {"0000-a.json": "{}"}])
def test_an_unreadable_ledger_is_reported_and_kept(
    world: ScriptedWorld, reaper: Kubernetes, dead: GameDay, data: dict[str, str] | None
) -> None:
    odd = {"metadata": {"name": "odd", "labels": {"gameday.dev/ledger": "true"}}, "data": data}
    world.core.create_namespaced_config_map(NAMESPACE, odd)
    result = reap(reaper)
    assert [one.config_map for one in result.unreadable] == ["odd"]
    assert not result.is_clean
    assert dead.undone
    assert world.ledgers() == ["odd"]


def test_an_entry_nobody_can_read_keeps_its_ledger(world: ScriptedWorld, reaper: Kubernetes, dead: GameDay) -> None:
    odd = {"data": {"0009-odd.json": "no json"}}
    world.core.patch_namespaced_config_map(ledger_name(dead.id), NAMESPACE, odd)
    result = reap(reaper)
    assert [(one.config_map, one.key) for one in result.unreadable] == [(ledger_name(dead.id), "0009-odd.json")]
    assert not result.is_clean
    assert not dead.tainted
    assert world.ledgers() == [ledger_name(dead.id)]


def test_two_reapers_do_not_trip_over_each_other(
    reaper: Kubernetes, world: ScriptedWorld, dead: GameDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one works; the second finds the lease held by a reaper."""
    listed = reaper.core.list_namespaced_config_map

    def overtaken(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        with world.connected("gameday-reaper") as other:
            assert reap(other).is_clean
        return listed(*arguments, **options)

    monkeypatch.setattr(reaper.core, "list_namespaced_config_map", overtaken)
    assert reap(reaper) == ReapResult()
    assert dead.undone


def quarantine_left_dirty(day: GameDay) -> None:
    """Settle the quarantine as one that came back, beside a canary that a person has to look at."""
    for entry in day.ledger.open_entries():
        day.ledger.settle(entry, Cleanliness.DIRTY, "flow", ["it came back"])


def test_a_quarantine_that_a_person_has_lifted_is_settled_and_other_dirty_entries_stay(
    world: ScriptedWorld, reaper: Kubernetes, dead: GameDay
) -> None:
    quarantine_left_dirty(dead)
    world.taint(dead.node)
    canary, quarantine = sorted(reap(reaper).reaped, key=lambda one: one.entry.id)
    assert (canary.run_id, canary.entry.id, canary.cleanliness) == (dead.id, "canary", Cleanliness.DIRTY)
    assert (quarantine.run_id, quarantine.entry.id, quarantine.cleanliness) == (
        dead.id,
        "quarantine",
        Cleanliness.CLEAN,
    )
    assert quarantine.evidence == (f"read: {dead.node} is no longer quarantined",)
    (ledger,) = stored_ledgers(reaper).ledgers
    stored = next(entry for entry in ledger.entries if entry.id == "quarantine")
    assert (stored.settled, stored.by, stored.evidence) == (Cleanliness.CLEAN, "reaper", quarantine.evidence)


@pytest.mark.parametrize("fault", [Cleanliness.UNKNOWN, Cleanliness.DIRTY])
def test_a_quarantine_that_was_lifted_with_its_fault_in_stays_dirty(
    world: ScriptedWorld, reaper: Kubernetes, dead: GameDay, fault: Cleanliness
) -> None:
    quarantine_left_dirty(dead)
    # On a node without a kubelet nothing takes it out.
    undo = TakeOutFault(pod=f"gd-{dead.id}-inject", gpu=0, fault={"type": "power_cap", "watts": 300})
    injected = dead.ledger.intend(id="inject", act="inject", node=dead.node, undo=undo, expires=LATER)
    dead.ledger.settle(injected, fault, "flow", ["the power limit is still 300 W"])
    world.taint(dead.node)
    found = {one.entry.id: one for one in reap(reaper).reaped}
    assert found["quarantine"].cleanliness is Cleanliness.DIRTY
    assert found["quarantine"].evidence == ("it came back",)


def test_a_quarantine_that_cannot_be_looked_at_again_stays_dirty_and_says_why(
    reaper: Kubernetes, dead: GameDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    quarantine_left_dirty(dead)
    monkeypatch.setattr(reaper.core, "read_node", away)
    quarantine = next(one for one in reap(reaper).reaped if one.entry.id == "quarantine")
    assert (quarantine.run_id, quarantine.cleanliness) == (dead.id, Cleanliness.DIRTY)
    assert quarantine.evidence[0] == "it came back"
    assert "500 etcd is away" in quarantine.evidence[1]


def test_a_dirty_entry_over_which_something_unforeseen_happens_is_named_and_the_next_one_goes_on(
    world: ScriptedWorld, reaper: Kubernetes, dead: GameDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    quarantine = dead.ledger.open_entries()[1]
    dead.ledger.settle(quarantine, Cleanliness.DIRTY, "flow", ["it came back"])

    def broken(*_: object) -> None:
        raise RuntimeError("not foreseen")

    monkeypatch.setattr("gameday.reaper.reap.snapshot", broken)
    named, canary = reap(reaper).reaped
    assert (named.run_id, named.entry.id, named.cleanliness) == (dead.id, "quarantine", Cleanliness.UNKNOWN)
    assert "not foreseen" in named.evidence[0]
    assert (canary.entry.id, canary.cleanliness) == ("canary", Cleanliness.CLEAN)


# --- one run of a season that goes on ---


@pytest.fixture
def sibling(world: ScriptedWorld, runner: Kubernetes) -> GameDay:
    """Another run of the season: it lives."""
    day = GameDay(world, runner)
    day.leases.acquire(node_lease(day.node), timedelta(minutes=20))
    day.write()
    world.add_pod(f"gd-{day.id}-more", day.id)
    return day


def test_one_run_is_undone_and_its_siblings_are_left_alone(
    world: ScriptedWorld, reaper: Kubernetes, dead: GameDay, sibling: GameDay
) -> None:
    world.core.patch_namespaced_config_map(
        ledger_name(sibling.id), NAMESPACE, {"data": {"0009-odd.json": "a sibling's, which is not ours to judge"}}
    )
    result = reap_run(reaper, dead.id)
    assert [(one.run_id, one.entry.id) for one in result.reaped] == [(dead.id, "canary"), (dead.id, "quarantine")]
    assert result.is_clean
    assert dead.undone
    assert sibling.untouched
    assert world.holders() == {node_lease(sibling.node): sibling.id}


def test_what_cannot_be_read_of_one_runs_ledger_is_named(
    world: ScriptedWorld, reaper: Kubernetes, dead: GameDay
) -> None:
    odd = {"data": {"0009-odd.json": "no json"}}
    world.core.patch_namespaced_config_map(ledger_name(dead.id), NAMESPACE, odd)
    assert [one.key for one in reap_run(reaper, dead.id).unreadable] == ["0009-odd.json"]


def test_one_runs_pods_without_a_ledger_are_deleted_and_no_siblings(
    world: ScriptedWorld, reaper: Kubernetes, sibling: GameDay
) -> None:
    late, siblings = unique("late"), unique("late")
    for run in (late, siblings):
        world.add_pod(f"gd-{run}-inject", run)
    (stray,) = reap_run(reaper, late).reaped
    assert (stray.run_id, stray.entry.object, stray.cleanliness) == (late, f"pod/gd-{late}-inject", Cleanliness.CLEAN)
    assert (world.pods(late), world.pods(siblings)) == ([], [f"gd-{siblings}-inject"])
    assert sibling.untouched


@pytest.mark.parametrize("found", [Cleanliness.CLEAN, Cleanliness.DIRTY, Cleanliness.UNKNOWN])
def test_what_was_undone_of_one_run_is_in_its_history_and_the_worst_is_returned(
    world: ScriptedWorld,
    reaper: Kubernetes,
    dead: GameDay,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    found: Cleanliness,
) -> None:
    if found is Cleanliness.DIRTY:
        dead.ledger.settle(dead.ledger.open_entries()[0], found, "flow", ["still there"])
    if found is Cleanliness.UNKNOWN:
        monkeypatch.setattr(reaper.core, "patch_node", away)
    record = start_record(dead.id, quick_plan(), tmp_path)
    record.journal.close()
    assert reap_season_member(reaper, dead.id, tmp_path) is found
    history = read_history(tmp_path / dead.id / HISTORY_FILE)
    (problem,) = history.of(Problem)
    undid = "2 open changes" if found is Cleanliness.CLEAN else "1 open changes, and 1 more without proof"
    assert problem.what == f"the run ended without proof that it was undone; its season undid {undid}"
    assert {one.intent for one in history.of(FaultUndone)} == {"canary", "quarantine"}
    assert {one.at for one in history.records if isinstance(one.event, Problem | FaultUndone)} == {world.clock.now()}


def test_one_run_whose_cluster_does_not_answer_is_unknown(
    world: ScriptedWorld, reaper: Kubernetes, dead: GameDay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaper.core, "list_namespaced_pod", away)
    start_record(dead.id, quick_plan(), tmp_path).journal.close()
    assert reap_season_member(reaper, dead.id, tmp_path) is Cleanliness.UNKNOWN
    (noted,) = [one for one in read_history(tmp_path / dead.id / HISTORY_FILE).records if one.event.kind == "problem"]
    assert noted.at == world.clock.now()
    assert "500 etcd is away" in noted.event.what
    assert dead.untouched
