"""What a run follows of its targets, and what it does where the API server will not let it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from kubernetes import client

from gameday.errors import WatchRefusedError
from gameday.history.events import SignalUnwatched
from gameday.ledger.lease import CLUSTER_LEASE, Leases, node_lease
from gameday.reaper.reap import reap_under
from gameday.run.run import Run
from gameday.run.targets import choose_targets
from gameday.tasks.baseline import _lock_nodes
from tests.support.runs import chosen_target, follow_as_target
from tests.support.world import World, unique

NewRun = Callable[..., Run]
pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def world(server: World) -> Iterator[World]:
    """The real server: these tests are about watches, which are threads and sockets."""
    yield server
    server.clear()


@contextmanager
def without(world: World, resource: str) -> Iterator[None]:
    """The runner's account may not watch this while the block runs."""
    rights = client.RbacAuthorizationV1Api(world.core.api_client)
    roles = {"default": rights.read_namespaced_role("gameday-runner", "default")}
    cluster = rights.read_cluster_role("gameday-runner")
    for rule in (*roles["default"].rules, *cluster.rules):
        if resource in rule.resources:
            rule.verbs = [verb for verb in rule.verbs if verb != "watch"]
    before = (
        rights.read_namespaced_role("gameday-runner", "default").rules,
        rights.read_cluster_role("gameday-runner").rules,
    )
    rights.patch_namespaced_role("gameday-runner", "default", {"rules": roles["default"].rules})
    rights.patch_cluster_role("gameday-runner", {"rules": cluster.rules})
    try:
        yield
    finally:
        rights.patch_namespaced_role("gameday-runner", "default", {"rules": before[0]})
        rights.patch_cluster_role("gameday-runner", {"rules": before[1]})


def test_a_forbidden_watch_of_events_is_reported_immediately_and_the_run_goes_on(world: World, new_run: NewRun) -> None:
    group = {"test.example/group": unique("g")}
    node = world.add_node(labels=group)
    run = new_run(selector=group)
    chosen = choose_targets(run, {})
    with without(world, "events"):
        run.nodes.follow_targets(one.before for one in chosen)
    (said,) = run.history().of(SignalUnwatched)
    assert (said.node, said.signal) == (node, "events")
    assert "watch events in namespace default: 403" in said.why
    assert "deploy/rbac" in said.why
    assert run.nodes.now(node) is not None


def test_a_forbidden_watch_of_nodes_is_reported_by_name(world: World, new_run: NewRun) -> None:
    group = {"test.example/group": unique("g")}
    world.add_node(labels=group)
    run = new_run(selector=group)
    with without(world, "nodes"), pytest.raises(WatchRefusedError, match="watch nodes: 403") as caught:
        choose_targets(run, {})
    assert "deploy/rbac" in caught.value.hint


def test_nodes_that_were_not_chosen_are_followed_no_more(world: World, new_run: NewRun) -> None:
    group = {"test.example/group": unique("g")}
    names = {world.add_node(labels=group) for _ in range(3)}
    run = new_run(running_pods="kept", selector=group)
    chosen = choose_targets(run, {})
    assert all(run.nodes.follows(name) for name in names), "each was looked at for one that runs GPU pods"
    run.nodes.follow_targets(one.before for one in chosen)
    assert {name for name in names if run.nodes.follows(name)} == {chosen[0].node}
    assert run.nodes.trouble(chosen[0].node) == ""


def test_a_target_that_is_followed_again_is_watched_once(world: World, new_run: NewRun) -> None:
    run = new_run()
    before = set(threading.enumerate())
    node = world.add_node()
    for _ in range(2):
        follow_as_target(run, node)
    watches = set(threading.enumerate()) - before
    assert len([thread for thread in watches if thread.name == "watch events in namespace default"]) == 1
    run.nodes.stop()
    assert not any(thread.is_alive() for thread in watches)


def test_the_lease_of_a_node_that_a_dead_run_left_alone_is_freed(world: World, new_run: NewRun) -> None:
    """A run's first look lists no leases where neither ledger nor pod was left: a run that wants the node finds it."""
    run = new_run()
    node = unique("node")
    Leases(run.kubernetes, "dead", lambda _: None).acquire(node_lease(node), timedelta(hours=1))
    run.leases.acquire(CLUSTER_LEASE)
    try:
        assert reap_under(run.kubernetes, run.id, pods=[]).is_clean
        assert world.holders()[node_lease(node)] == "dead"
        _lock_nodes(run, (chosen_target(node),))
        assert world.holders()[node_lease(node)] == run.id
    finally:
        run.leases.release()
