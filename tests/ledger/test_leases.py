"""One game-day per cluster: who holds a lease, who may take it, and how its holder learns that it is gone."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from gameday.cluster.kubernetes import Kubernetes
from gameday.errors import KubernetesError, LeaseHeldError, LeaseLostError
from gameday.ledger import lease as leases_module
from gameday.ledger.lease import CLUSTER_LEASE, Leases, lease_duration, node_lease
from tests.support.world import NAMESPACE, PATIENCE_S, World, unique

# Renewals come this often in place of every 15 s.
QUICK = timedelta(seconds=0.2)


class Losses:
    """What `lost` was called with, for a test to wait on."""

    def __init__(self) -> None:
        self._said: queue.Queue[str] = queue.Queue()

    def __call__(self, why: str) -> None:
        self._said.put(why)

    def next(self) -> str:
        return self._said.get(timeout=PATIENCE_S)

    def none(self) -> bool:
        return self._said.empty()


@pytest.fixture
def lost() -> Losses:
    return Losses()


@pytest.fixture
def leases(world: World, runner: Kubernetes, lost: Losses) -> Iterator[Leases]:
    held = Leases(runner, "run-a", lost, QUICK)
    yield held
    held.release()


@pytest.fixture
def others(world: World, runner: Kubernetes) -> Leases:
    return Leases(runner, "run-b", lambda _: None)


def spec(world: World, name: str = CLUSTER_LEASE) -> Any:
    return world.coordination.read_namespaced_lease(name, NAMESPACE).spec


def lapse(world: World, name: str = CLUSTER_LEASE, *, by: timedelta = timedelta(hours=1)) -> None:
    """As if the holder had not renewed for an hour, by its own clock; observing it takes a second."""
    then = (datetime.now(UTC) - by).isoformat(timespec="microseconds").replace("+00:00", "Z")
    spec = {"renewTime": then, "leaseDurationSeconds": 1}
    world.coordination.patch_namespaced_lease(name, NAMESPACE, {"spec": spec})


def renewed(world: World, condition: Callable[[Any], bool]) -> Any:
    """The cluster lease once it satisfies the condition: its changes are watched, not polled."""
    from kubernetes import watch

    listed = world.coordination.list_namespaced_lease(NAMESPACE)
    for lease in listed.items:
        if condition(lease):
            return lease
    version = listed.metadata.resource_version
    stream = watch.Watch().stream(
        world.coordination.list_namespaced_lease, NAMESPACE, resource_version=version, timeout_seconds=int(PATIENCE_S)
    )
    return next(event["object"] for event in stream if condition(event["object"]))


def test_a_free_lease_is_taken_and_given_back(world: World, others: Leases) -> None:
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


def test_a_held_lease_is_refused_with_its_holders_name(world: World, runner: Kubernetes, others: Leases) -> None:
    others.acquire(CLUSTER_LEASE)
    with pytest.raises(LeaseHeldError) as caught:
        Leases(runner, "run-a", lambda _: None).acquire(CLUSTER_LEASE)
    assert caught.value.holder == "run-b"
    assert "lease gameday-cluster is held by run run-b, renewed " in str(caught.value)
    assert "good for 30 s" in str(caught.value)
    assert world.holders() == {CLUSTER_LEASE: "run-b"}


def test_another_run_of_the_same_id_is_refused_too(runner: Kubernetes, world: World) -> None:
    Leases(runner, "20260102-030405", lambda _: None).acquire(CLUSTER_LEASE)
    twin = Leases(runner, "20260102-030405", lambda _: None)
    with pytest.raises(LeaseHeldError):
        twin.acquire(CLUSTER_LEASE)
    twin.release()
    assert world.holders() == {CLUSTER_LEASE: "20260102-030405"}


def test_an_expired_lease_is_taken_over(world: World, runner: Kubernetes, others: Leases) -> None:
    others.acquire(CLUSTER_LEASE)
    lapse(world)
    Leases(runner, "run-a", lambda _: None).acquire(CLUSTER_LEASE)
    assert world.holders() == {CLUSTER_LEASE: "run-a"}
    assert spec(world).renew_time > datetime.now(UTC) - timedelta(minutes=1)


def test_a_lease_is_fresh_when_observing_its_dead_holder_took_its_whole_duration(
    world: World, runner: Kubernetes, others: Leases
) -> None:
    others.acquire(CLUSTER_LEASE)
    lapse(world)
    heir = Leases(runner, "run-a", lambda _: None, timedelta(seconds=0.9))
    before = datetime.now(UTC)
    heir.acquire(CLUSTER_LEASE)
    heir.check()
    assert spec(world).renew_time > before + timedelta(seconds=0.5)


def test_a_lease_without_a_holder_is_free(world: World, others: Leases) -> None:
    world.coordination.create_namespaced_lease(NAMESPACE, {"metadata": {"name": CLUSTER_LEASE}, "spec": {}})
    others.acquire(CLUSTER_LEASE)
    assert world.holders() == {CLUSTER_LEASE: "run-b"}


def test_who_loses_the_race_for_an_expired_lease_meets_the_winner(
    world: World, runner: Kubernetes, others: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    others.acquire(CLUSTER_LEASE)
    lapse(world)
    patch = runner.coordination.patch_namespaced_lease

    def late(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        theirs = {"spec": {"holderIdentity": "run-c", "renewTime": now}}
        world.coordination.patch_namespaced_lease(CLUSTER_LEASE, NAMESPACE, theirs)
        return patch(*arguments, **options)

    monkeypatch.setattr(runner.coordination, "patch_namespaced_lease", late)
    with pytest.raises(LeaseHeldError) as caught:
        Leases(runner, "run-a", lambda _: None).acquire(CLUSTER_LEASE)
    assert caught.value.holder == "run-c"
    assert world.holders() == {CLUSTER_LEASE: "run-c"}


def test_a_lease_that_may_not_be_made_is_an_error(world: World, reaper: Kubernetes) -> None:
    reaper.profile = reaper.profile.model_copy(update={"namespace": "default"})
    with pytest.raises(KubernetesError, match=r"create lease gameday-cluster: 403"):
        Leases(reaper, "run-a", lambda _: None).acquire(CLUSTER_LEASE)


def test_renewal_goes_on(world: World, leases: Leases, lost: Losses) -> None:
    leases.acquire(CLUSTER_LEASE)
    first = spec(world).renew_time
    leases.keep_renewing()
    second = renewed(world, lambda lease: lease.spec.renew_time > first).spec.renew_time
    renewed(world, lambda lease: lease.spec.renew_time > second)
    assert lost.none()


def test_somebody_elses_note_on_the_lease_costs_nothing(world: World, leases: Leases, lost: Losses) -> None:
    leases.acquire(CLUSTER_LEASE)
    world.coordination.patch_namespaced_lease(
        CLUSTER_LEASE, NAMESPACE, {"metadata": {"annotations": {"example.com/seen": "yes"}}}
    )
    first = spec(world).renew_time
    leases.keep_renewing()
    renewed(world, lambda lease: lease.spec.renew_time > first)
    assert lost.none()
    leases.release()
    assert world.holders() == {}


def test_a_run_that_slept_does_not_take_its_lease_back(world: World, runner: Kubernetes, lost: Losses) -> None:
    sleeper = Leases(runner, "run-a", lost, QUICK)
    sleeper.acquire(CLUSTER_LEASE)
    lapse(world)
    awake = Leases(runner, "run-b", lambda _: None)
    awake.acquire(CLUSTER_LEASE)
    sleeper.keep_renewing()
    assert lost.next() == "run run-b took the cluster lease over"
    sleeper.release()
    assert world.holders() == {CLUSTER_LEASE: "run-b"}


def test_a_deleted_lease_is_lost(world: World, leases: Leases, lost: Losses) -> None:
    leases.acquire(CLUSTER_LEASE)
    world.coordination.delete_namespaced_lease(CLUSTER_LEASE, NAMESPACE)
    leases.keep_renewing()
    assert lost.next() == "somebody deleted the cluster lease"


def test_a_lease_that_cannot_be_renewed_is_lost_once_its_time_is_up(
    runner: Kubernetes, lost: Losses, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As below: a busy machine must leave time for a second attempt.
    leases = Leases(runner, "run-a", lost, timedelta(seconds=2))
    leases.acquire(CLUSTER_LEASE)
    asked: list[int] = []

    def away(*_: Any, **__: Any) -> Any:
        asked.append(1)
        raise ApiException(status=503, reason="away")

    monkeypatch.setattr(runner.coordination, "patch_namespaced_lease", away)
    leases.keep_renewing()
    assert lost.next() == "could not renew the cluster lease for 2 s: renew lease gameday-cluster: 503 away"
    assert len(asked) > 1
    monkeypatch.undo()
    leases.release()


def test_a_failure_that_passes_is_no_loss(
    world: World, runner: Kubernetes, lost: Losses, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough that a busy machine does not make the first renewal the last.
    leases = Leases(runner, "run-a", lost, timedelta(seconds=2))
    leases.acquire(CLUSTER_LEASE)
    first = spec(world).renew_time

    def away_once(*_: Any, **__: Any) -> Any:
        monkeypatch.undo()
        raise ApiException(status=503, reason="away")

    monkeypatch.setattr(runner.coordination, "patch_namespaced_lease", away_once)
    leases.keep_renewing()
    renewed(world, lambda lease: lease.spec.renew_time > first)
    leases.release()
    assert lost.none()


def test_only_our_own_lease_is_given_back(world: World, runner: Kubernetes, others: Leases) -> None:
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
    asked: list[str] = []

    def away(name: str, *_: Any, **__: Any) -> Any:
        asked.append(name)
        raise ApiException(status=503, reason="away")

    monkeypatch.setattr(runner.coordination, "delete_namespaced_lease", away)
    leases.release()
    assert len(asked) == 2


# --- clocks that are wrong ---


def test_a_holder_whose_clock_is_an_hour_behind_is_seen_to_live(
    world: World, runner: Kubernetes, others: Leases
) -> None:
    others.acquire(CLUSTER_LEASE)
    lapse(world)

    def renews_meanwhile(_: float) -> None:
        lapse(world, by=timedelta(minutes=59))

    with pytest.raises(LeaseHeldError):
        Leases(runner, "run-a", lambda _: None, sleep=renews_meanwhile).acquire(CLUSTER_LEASE)
    assert world.holders() == {CLUSTER_LEASE: "run-b"}


def test_a_dead_holder_whose_clock_was_an_hour_ahead_is_found_dead_by_the_patient(
    world: World, runner: Kubernetes, others: Leases
) -> None:
    others.acquire(CLUSTER_LEASE)
    lapse(world, by=timedelta(hours=-1))
    ours = Leases(runner, "run-a", lambda _: None)
    with pytest.raises(LeaseHeldError):
        ours.acquire(CLUSTER_LEASE)
    ours.acquire(CLUSTER_LEASE, always_observe=True)
    assert world.holders() == {CLUSTER_LEASE: "run-a"}


def test_an_observer_that_is_stopped_takes_nothing(world: World, runner: Kubernetes, others: Leases) -> None:
    others.acquire(CLUSTER_LEASE)
    lapse(world)

    def stops(_: float) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        Leases(runner, "run-a", lambda _: None, sleep=stops).acquire(CLUSTER_LEASE)
    assert world.holders() == {CLUSTER_LEASE: "run-b"}


def test_a_nodes_lease_is_free_when_it_is_given_back_and_not_when_its_time_is_up(
    world: World, runner: Kubernetes, others: Leases
) -> None:
    others.acquire(node_lease("n1"))
    lapse(world, node_lease("n1"))
    with pytest.raises(LeaseHeldError):
        Leases(runner, "run-a", lambda _: None).acquire(node_lease("n1"))
    others.release()
    Leases(runner, "run-a", lambda _: None).acquire(node_lease("n1"))


def test_a_run_that_slept_through_its_lease_notices_by_itself(
    runner: Kubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Leases(runner, "run-a", lambda _: None)
    ours.acquire(CLUSTER_LEASE)
    ours.check()
    now = leases_module.boottime_s() + 31
    monkeypatch.setattr(leases_module, "boottime_s", lambda: now)
    with pytest.raises(LeaseLostError, match="not renewed for 31 s"):
        ours.check()
    ours.release()
