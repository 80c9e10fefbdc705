"""One game-day per cluster: who holds a lease, who may take it, and how its holder learns that it is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from gameday.cluster import json_api
from gameday.cluster.kubernetes import Kubernetes
from gameday.errors import KubernetesError, LeaseHeldError, LeaseLostError, SeasonGoneError
from gameday.ledger.lease import CLUSTER_LEASE, LEASE_DURATION, Leases, lease_duration, node_lease
from tests.support.scripted.administrator import ScriptedWorld
from tests.support.scripted.cluster import ScriptedCluster
from tests.support.scripted.script import Script
from tests.support.world import NAMESPACE, unique

RENEWED_EVERY_S = LEASE_DURATION.total_seconds() / 2


class Losses:
    """The reasons that `lost` was given."""

    def __init__(self, world: ScriptedWorld) -> None:
        self._clock = world.clock
        self._is_lost = threading.Event()
        self.said: list[str] = []

    def __call__(self, why: str) -> None:
        self.said.append(why)
        self._is_lost.set()

    def next(self) -> str:
        """Let time pass until it is called; return what it is told."""
        assert self._clock.wait_set(self._is_lost, 2 * LEASE_DURATION.total_seconds())
        (why,) = self.said
        return why


@pytest.fixture
def lost(world: ScriptedWorld) -> Losses:
    return Losses(world)


@pytest.fixture
def leases(world: ScriptedWorld, runner: Kubernetes, lost: Losses) -> Iterator[Leases]:
    held = Leases(runner, "run-a", lost)
    yield held
    held.release()


@pytest.fixture
def others(world: ScriptedWorld, runner: Kubernetes) -> Leases:
    return Leases(runner, "run-b", lambda _: None)


def spec(world: ScriptedWorld, name: str = CLUSTER_LEASE) -> Any:
    return world.coordination.read_namespaced_lease(name, NAMESPACE).spec


def lapse(world: ScriptedWorld, name: str = CLUSTER_LEASE, *, by: timedelta = timedelta(hours=1)) -> None:
    """As if the holder had not renewed for an hour, by its own clock; observing it takes a second."""
    then = (world.clock.now() - by).isoformat(timespec="microseconds").replace("+00:00", "Z")
    spec = {"renewTime": then, "leaseDurationSeconds": 1}
    world.coordination.patch_namespaced_lease(name, NAMESPACE, {"spec": spec})


def intercept(monkeypatch: pytest.MonkeyPatch, verb: str, instead: Callable[[Callable[[], Any]], Any]) -> None:
    """Give every request about leases of this verb to `instead`, with the act that sends it."""
    send = json_api.send

    def intercepted(api: Any, method: str, path: str, **options: Any) -> Any:
        sends = partial(send, api, method, path, **options)
        return instead(sends) if method == verb else sends()

    monkeypatch.setattr(json_api, "send", intercepted)


def test_a_free_lease_is_taken_and_given_back(world: ScriptedWorld, others: Leases) -> None:
    others.acquire(CLUSTER_LEASE)
    others.acquire(node_lease("n1"), timedelta(minutes=20))
    assert world.holders() == {CLUSTER_LEASE: "run-b", "gameday-node-n1": "run-b"}
    assert spec(world).lease_duration_seconds == 30
    assert spec(world, node_lease("n1")).lease_duration_seconds == 1200
    others.release()
    assert world.holders() == {}


@pytest.mark.parametrize("outage_s", [0, 20, 60])
def test_a_lease_outlasts_the_outage_that_its_own_holder_brings(outage_s: int) -> None:
    lasts = lease_duration(30, timedelta(seconds=outage_s)).total_seconds()
    # At the worst the outage begins when a renewal is due, after half of the time, and ends right after a retry.
    assert lasts - (lasts / 2 + outage_s + lasts / 10) >= 12
    assert lease_duration(30) == timedelta(seconds=30)


def test_a_held_lease_is_refused_with_its_holders_name(
    world: ScriptedWorld, runner: Kubernetes, others: Leases
) -> None:
    others.acquire(CLUSTER_LEASE)
    with pytest.raises(LeaseHeldError) as caught:
        Leases(runner, "run-a", lambda _: None).acquire(CLUSTER_LEASE)
    assert caught.value.holder == "run-b"
    assert "lease gameday-cluster is held by run run-b, renewed " in str(caught.value)
    assert "good for 30 s" in str(caught.value)
    assert world.holders() == {CLUSTER_LEASE: "run-b"}


def test_another_run_of_the_same_id_is_refused_too(runner: Kubernetes, world: ScriptedWorld) -> None:
    Leases(runner, "20260102-030405", lambda _: None).acquire(CLUSTER_LEASE)
    world.clock.sleep(0.001)
    twin = Leases(runner, "20260102-030405", lambda _: None)
    with pytest.raises(LeaseHeldError):
        twin.acquire(CLUSTER_LEASE)
    twin.release()
    assert world.holders() == {CLUSTER_LEASE: "20260102-030405"}


@pytest.mark.parametrize("fate", ["answer lost", "sent twice"])
def test_a_lease_that_was_made_without_our_knowledge_is_ours(
    world: ScriptedWorld, runner: Kubernetes, others: Leases, fate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(create: Callable[[], Any]) -> Any:
        create()
        if fate == "answer lost":
            raise ApiException(status=502)
        return create()

    leases = Leases(runner, unique("run"), pytest.fail)
    intercept(monkeypatch, "POST", made)
    leases.acquire(CLUSTER_LEASE)
    monkeypatch.undo()
    with pytest.raises(LeaseHeldError):
        others.acquire(CLUSTER_LEASE)
    leases.release()
    assert world.holders() == {}


def test_an_expired_lease_is_taken_over(world: ScriptedWorld, runner: Kubernetes, others: Leases) -> None:
    others.acquire(CLUSTER_LEASE)
    lapse(world)
    Leases(runner, "run-a", lambda _: None).acquire(CLUSTER_LEASE)
    assert world.holders() == {CLUSTER_LEASE: "run-a"}
    assert spec(world).renew_time == world.clock.now()


def test_a_lease_is_fresh_when_observing_its_dead_holder_took_its_whole_duration(
    world: ScriptedWorld, runner: Kubernetes, others: Leases
) -> None:
    others.acquire(CLUSTER_LEASE)
    lapse(world)
    heir = Leases(runner, "run-a", lambda _: None, timedelta(seconds=0.9))
    before = world.clock.now()
    heir.acquire(CLUSTER_LEASE)
    heir.check()
    assert spec(world).renew_time == before + timedelta(seconds=1)


def test_a_lease_without_a_holder_is_free(world: ScriptedWorld, others: Leases) -> None:
    world.coordination.create_namespaced_lease(NAMESPACE, {"metadata": {"name": CLUSTER_LEASE}, "spec": {}})
    others.acquire(CLUSTER_LEASE)
    assert world.holders() == {CLUSTER_LEASE: "run-b"}


def test_who_loses_the_race_for_an_expired_lease_meets_the_winner(
    world: ScriptedWorld, runner: Kubernetes, others: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    others.acquire(CLUSTER_LEASE)
    lapse(world)

    def late(patch: Callable[[], Any]) -> Any:
        monkeypatch.undo()
        now = world.clock.now().isoformat(timespec="microseconds").replace("+00:00", "Z")
        theirs = {"spec": {"holderIdentity": "run-c", "renewTime": now}}
        world.coordination.patch_namespaced_lease(CLUSTER_LEASE, NAMESPACE, theirs)
        return patch()

    intercept(monkeypatch, "PATCH", late)
    with pytest.raises(LeaseHeldError) as caught:
        Leases(runner, "run-a", lambda _: None).acquire(CLUSTER_LEASE)
    assert caught.value.holder == "run-c"
    assert world.holders() == {CLUSTER_LEASE: "run-c"}


def test_a_lease_that_may_be_neither_read_nor_made_is_an_error(
    world: ScriptedWorld, reaper: Kubernetes, others: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    reaper.profile = reaper.profile.model_copy(update={"namespace": "default"})
    with pytest.raises(KubernetesError, match=r"read lease gameday-cluster: 403"):
        Leases(reaper, "run-a", lambda _: None).acquire(CLUSTER_LEASE)

    def forbidden(_: object) -> Any:
        raise ApiException(status=403, reason="Forbidden")

    intercept(monkeypatch, "POST", forbidden)
    with pytest.raises(KubernetesError, match=r"create lease gameday-cluster: 403"):
        others.acquire(CLUSTER_LEASE)


def test_renewal_goes_on(world: ScriptedWorld, leases: Leases, lost: Losses) -> None:
    leases.acquire(CLUSTER_LEASE)
    first = spec(world).renew_time
    leases.keep_renewing()
    for number in (1, 2):
        world.clock.sleep(RENEWED_EVERY_S)
        assert spec(world).renew_time == first + number * LEASE_DURATION / 2
    assert lost.said == []


def test_somebody_elses_note_on_the_lease_costs_nothing(world: ScriptedWorld, leases: Leases, lost: Losses) -> None:
    leases.acquire(CLUSTER_LEASE)
    world.coordination.patch_namespaced_lease(
        CLUSTER_LEASE, NAMESPACE, {"metadata": {"annotations": {"example.com/seen": "yes"}}}
    )
    first = spec(world).renew_time
    leases.keep_renewing()
    world.clock.sleep(RENEWED_EVERY_S)
    assert spec(world).renew_time == first + LEASE_DURATION / 2
    assert lost.said == []
    leases.release()
    assert world.holders() == {}


def test_a_run_that_slept_does_not_take_its_lease_back(world: ScriptedWorld, runner: Kubernetes, lost: Losses) -> None:
    sleeper = Leases(runner, "run-a", lost)
    sleeper.acquire(CLUSTER_LEASE)
    lapse(world)
    awake = Leases(runner, "run-b", lambda _: None)
    awake.acquire(CLUSTER_LEASE)
    sleeper.keep_renewing()
    assert lost.next() == "run-a no longer holds lease gameday-cluster: run-b does"
    sleeper.release()
    assert world.holders() == {CLUSTER_LEASE: "run-b"}


def test_a_deleted_lease_is_lost(world: ScriptedWorld, leases: Leases, lost: Losses) -> None:
    leases.acquire(CLUSTER_LEASE)
    world.coordination.delete_namespaced_lease(CLUSTER_LEASE, NAMESPACE)
    leases.keep_renewing()
    assert lost.next() == "run-a no longer holds lease gameday-cluster: nobody does"


def test_a_lease_that_cannot_be_renewed_is_lost_once_its_time_is_up(
    runner: Kubernetes, leases: Leases, lost: Losses, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases.acquire(CLUSTER_LEASE)
    asked: list[int] = []

    def away(_: object) -> Any:
        asked.append(1)
        raise ApiException(status=503, reason="away")

    intercept(monkeypatch, "PATCH", away)
    leases.keep_renewing()
    assert lost.next() == "no success for 30 s: renew lease gameday-cluster: 503 away"
    assert len(asked) == 6, "after half of its time, and then every 3 s"
    monkeypatch.undo()


def test_a_failure_that_passes_is_no_loss(
    world: ScriptedWorld, runner: Kubernetes, leases: Leases, lost: Losses, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.clock.sleep(3600)  # the machine has been up for longer than a lease lasts
    leases.acquire(CLUSTER_LEASE)
    first = spec(world).renew_time

    def away_once(_: object) -> Any:
        monkeypatch.undo()
        raise ApiException(status=503, reason="away")

    intercept(monkeypatch, "PATCH", away_once)
    leases.keep_renewing()
    world.clock.sleep(RENEWED_EVERY_S + LEASE_DURATION.total_seconds() / 10)
    assert spec(world).renew_time == first + LEASE_DURATION * 0.6, "a tenth of its time after the failure"
    assert lost.said == []


def test_only_our_own_lease_is_given_back(world: ScriptedWorld, runner: Kubernetes, others: Leases) -> None:
    ours = Leases(runner, "run-a", lambda _: None)
    ours.acquire(CLUSTER_LEASE)
    ours.acquire(node_lease("n1"))
    for name in (CLUSTER_LEASE, node_lease("n1")):
        world.coordination.delete_namespaced_lease(name, NAMESPACE)
        others.acquire(name)
    ours.release()
    assert world.holders() == {CLUSTER_LEASE: "run-b", node_lease("n1"): "run-b"}


def test_a_server_that_is_away_does_not_keep_a_run_from_ending(
    leases: Leases, runner: Kubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases.acquire(CLUSTER_LEASE)
    leases.acquire(node_lease(unique("n")))
    asked: list[object] = []

    def away(request: object) -> Any:
        asked.append(request)
        raise ApiException(status=503, reason="away")

    intercept(monkeypatch, "DELETE", away)
    leases.release()
    assert len(asked) == 2


# --- a season's run ---


@pytest.fixture
def season(world: ScriptedWorld, runner: Kubernetes) -> Iterator[Leases]:
    held = Leases(runner, "season-1", lambda _: None)
    held.acquire(CLUSTER_LEASE)
    yield held
    held.release()


@pytest.fixture
def member(runner: Kubernetes, lost: Losses) -> Iterator[Leases]:
    ours = Leases(runner, "season-1-01", lost)
    yield ours
    ours.release()


def test_a_run_relies_on_its_season_for_as_long_as_that_renews(
    world: ScriptedWorld, season: Leases, member: Leases, lost: Losses
) -> None:
    season.keep_renewing()
    member.rely_on("season-1")
    for _ in range(10):
        world.clock.sleep(RENEWED_EVERY_S)
        member.check()
    assert lost.said == []
    assert world.holders() == {CLUSTER_LEASE: "season-1"}
    season.release()
    assert lost.next() == "season-1 no longer holds lease gameday-cluster: nobody does"


def test_a_season_is_dead_once_it_has_not_renewed_for_its_duration(
    world: ScriptedWorld, season: Leases, member: Leases, lost: Losses
) -> None:
    began = world.clock.monotonic()
    member.rely_on("season-1")
    assert lost.next() == "season-1 no longer renews lease gameday-cluster: it is dead"
    assert world.clock.monotonic() - began == LEASE_DURATION.total_seconds()
    with pytest.raises(LeaseLostError, match="it is dead"):
        member.check()


def test_a_season_that_cannot_be_looked_at_is_lost_once_its_time_is_up(
    world: ScriptedWorld,
    runner: Kubernetes,
    season: Leases,
    member: Leases,
    lost: Losses,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began = world.clock.monotonic()
    member.rely_on("season-1")

    def away(_: object) -> Any:
        raise ApiException(status=503, reason="away")

    intercept(monkeypatch, "GET", away)
    assert lost.next().startswith("no success for 30 s: read lease gameday-cluster: ")
    assert 30 <= world.clock.monotonic() - began < 33, "a tenth of its time is between two looks"


@pytest.mark.parametrize(("held", "why"), [(False, "nobody does"), (True, "run-b does")])
def test_a_run_of_a_season_that_does_not_hold_the_lease_does_not_begin(
    others: Leases, member: Leases, held: bool, why: str
) -> None:
    if held:
        others.acquire(CLUSTER_LEASE)
    with pytest.raises(SeasonGoneError, match=why):
        member.rely_on("season-1")


# --- clocks that are wrong ---


def test_a_holder_whose_clock_is_an_hour_behind_is_seen_to_live(
    world: ScriptedWorld, runner: Kubernetes, others: Leases
) -> None:
    others.acquire(CLUSTER_LEASE)
    lapse(world)

    def renews_meanwhile(_: float) -> None:
        lapse(world, by=timedelta(minutes=59))

    with pytest.raises(LeaseHeldError):
        Leases(runner, "run-a", lambda _: None, sleep=renews_meanwhile).acquire(CLUSTER_LEASE)
    assert world.holders() == {CLUSTER_LEASE: "run-b"}


def test_a_dead_holder_whose_clock_was_an_hour_ahead_is_found_dead_by_the_patient(
    world: ScriptedWorld, runner: Kubernetes, others: Leases
) -> None:
    others.acquire(CLUSTER_LEASE)
    lapse(world, by=timedelta(hours=-1))
    ours = Leases(runner, "run-a", lambda _: None)
    with pytest.raises(LeaseHeldError):
        ours.acquire(CLUSTER_LEASE)
    ours.acquire(CLUSTER_LEASE, always_observe=True)
    assert world.holders() == {CLUSTER_LEASE: "run-a"}


def test_a_living_holder_is_met_when_it_renews_and_not_only_when_its_whole_time_is_over(
    world: ScriptedWorld, runner: Kubernetes, others: Leases
) -> None:
    others.acquire(CLUSTER_LEASE)
    others.keep_renewing()
    before = world.clock.now()
    with pytest.raises(LeaseHeldError):
        Leases(runner, "run-a", lambda _: None).acquire(CLUSTER_LEASE, always_observe=True)
    assert world.clock.now() - before == timedelta(seconds=RENEWED_EVERY_S)
    others.release()


@pytest.mark.parametrize("times", [{"leaseDurationSeconds": None}, {"renewTime": None}])
def test_a_lease_that_says_nothing_of_its_time_is_observed_and_taken(
    world: ScriptedWorld, runner: Kubernetes, others: Leases, times: dict[str, None]
) -> None:
    """By somebody's hand: our own leases say both."""
    others.acquire(CLUSTER_LEASE)
    world.coordination.patch_namespaced_lease(CLUSTER_LEASE, NAMESPACE, {"spec": times})
    before = world.clock.now()
    Leases(runner, "run-a", lambda _: None).acquire(CLUSTER_LEASE)
    assert world.holders() == {CLUSTER_LEASE: "run-a"}
    assert world.clock.now() - before == LEASE_DURATION


@pytest.mark.parametrize("emptied", [True, False])
def test_a_lease_that_goes_or_is_emptied_while_it_is_observed_is_taken(
    world: ScriptedWorld, runner: Kubernetes, others: Leases, emptied: bool
) -> None:
    others.acquire(CLUSTER_LEASE)
    lapse(world)

    def goes(_: float) -> None:
        if emptied:
            world.coordination.patch_namespaced_lease(CLUSTER_LEASE, NAMESPACE, {"spec": None})
        else:
            others.release()

    Leases(runner, "run-a", lambda _: None, sleep=goes).acquire(CLUSTER_LEASE)
    assert world.holders() == {CLUSTER_LEASE: "run-a"}


def test_a_lease_that_cannot_be_observed_is_not_taken(
    world: ScriptedWorld, runner: Kubernetes, others: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    others.acquire(CLUSTER_LEASE)
    lapse(world)

    def away(_: object) -> Any:
        raise ApiException(status=500, reason="etcd is away")

    def goes_away(_: float) -> None:
        intercept(monkeypatch, "GET", away)

    with pytest.raises(KubernetesError, match="etcd is away"):
        Leases(runner, "run-a", lambda _: None, sleep=goes_away).acquire(CLUSTER_LEASE)
    assert world.holders() == {CLUSTER_LEASE: "run-b"}


def test_an_observer_that_is_stopped_takes_nothing(world: ScriptedWorld, runner: Kubernetes, others: Leases) -> None:
    others.acquire(CLUSTER_LEASE)
    lapse(world)

    def stops(_: float) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        Leases(runner, "run-a", lambda _: None, sleep=stops).acquire(CLUSTER_LEASE)
    assert world.holders() == {CLUSTER_LEASE: "run-b"}


def test_a_nodes_lease_is_free_when_it_is_given_back_and_not_when_its_time_is_up(
    world: ScriptedWorld, runner: Kubernetes, others: Leases
) -> None:
    others.acquire(node_lease("n1"))
    lapse(world, node_lease("n1"))
    with pytest.raises(LeaseHeldError):
        Leases(runner, "run-a", lambda _: None).acquire(node_lease("n1"))
    others.release()
    Leases(runner, "run-a", lambda _: None).acquire(node_lease("n1"))


def test_a_run_that_slept_through_its_lease_notices_by_itself(world: ScriptedWorld, runner: Kubernetes) -> None:
    ours = Leases(runner, "run-a", lambda _: None)
    ours.acquire(CLUSTER_LEASE)
    ours.check()
    world.clock.freeze(31)
    with pytest.raises(LeaseLostError, match="not renewed for 31 s"):
        ours.check()
    ours.release()


def test_a_lease_may_be_taken_in_a_whole_second() -> None:
    cluster = ScriptedCluster(Script(), nodes=0)
    assert cluster.now().microsecond == 0
    kubernetes = cluster.kubernetes()
    leases = Leases(kubernetes, "run-1", lambda why: None)
    leases.acquire(CLUSTER_LEASE)
    assert cluster.left() == [f"leases.coordination.k8s.io/{CLUSTER_LEASE}"]
    leases.release()
    kubernetes.close()
    assert cluster.left() == []
