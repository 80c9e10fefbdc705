"""Followers that outlive their server, wake waiting threads, and end on request."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from gameday.cluster import list_watch
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.manifests import RUN_LABEL
from gameday.cluster.pods import PodFollower, PodSeen
from gameday.cluster.watch import Follower
from gameday.errors import WatchRefusedError
from gameday.values.results import Cleanliness
from tests.support.virtual_clock import VirtualClock
from tests.support.world import NAMESPACE, PATIENCE_S, World, termination_message, unique, until


@pytest.fixture
def run() -> str:
    return unique("run")


@pytest.fixture
def pods(runner: Kubernetes, run: str) -> Iterator[PodFollower]:
    with PodFollower(runner, run) as following:
        assert following.wait_synced(PATIENCE_S)
        yield following


def test_a_follower_knows_old_objects_and_sees_new_ones(world: World, runner: Kubernetes) -> None:
    group = {"test.example/group": unique("g")}
    first = world.add_node(labels=group)
    notices: list[tuple[str, str]] = []
    selector = ",".join(f"{key}={value}" for key, value in group.items())
    with Follower(
        runner.core.list_node, lambda kind, node: notices.append((kind, node.metadata.name)), label_selector=selector
    ) as nodes:
        assert nodes.wait_synced(PATIENCE_S)
        assert nodes.named(first) is not None
        world.add_node()
        second = world.add_node(labels=group)
        assert until(nodes, lambda: ("ADDED", second) in notices)
        assert nodes.named(second) is not None
        world.core.delete_node(first)
        # The store forgets it before the callback is called.
        assert until(nodes, lambda: ("DELETED", first) in notices)
        assert nodes.named(first) is None
    assert notices[0] == ("ADDED", first)
    assert notices[-1] == ("DELETED", first)
    assert {name for _, name in notices} == {first, second}
    assert runner.counter.cost().by_call == {"WATCH nodes": 1}


def test_a_callback_that_fails_still_wakes_waiting_threads(world: World, runner: Kubernetes, run: str) -> None:
    called: list[str] = []

    def fail(_: str, pod: Any) -> None:
        called.append(pod.metadata.name)
        raise ValueError("a bug of ours")

    with Follower(
        runner.core.list_namespaced_pod, fail, namespace=NAMESPACE, label_selector=f"{RUN_LABEL}={run}"
    ) as pods:
        assert pods.wait_synced(PATIENCE_S)
        name = unique("pod")
        with pods.changed:
            world.add_pod(name, run)
            assert pods.changed.wait(PATIENCE_S)
        assert called == [name]


def test_a_change_wakes_waiting_threads(world: World, pods: PodFollower, run: str) -> None:
    name = unique("pod")
    asked: list[bool] = []

    def there() -> bool:
        asked.append(pods.seen(name) is not None)
        if len(asked) == 1:
            world.add_pod(name, run)
        return asked[-1]

    assert pods.wait(there, PATIENCE_S)
    assert asked == [False, True]


def test_waits_time_out(world: World, pods: PodFollower, run: str) -> None:
    assert not pods.wait(lambda: False, 0)
    name = unique("pod")
    uid = world.add_pod(name, run)
    assert pods.wait(lambda: pods.seen(name) is not None, PATIENCE_S)
    assert not pods.wait_gone(name, uid, 0)
    assert not pods.wait_gone(name, None, 0)


def test_a_pod_is_gone_once_the_watch_has_seen_it_go(
    world: World, pods: PodFollower, runner: Kubernetes, run: str
) -> None:
    name = unique("pod")
    assert pods.wait_gone(name, None, 0), "the server knows of no such pod, and neither does the watch"
    assert not pods.wait_gone(name, "a-uid-the-server-named", 0), "the watch has not met it yet"
    world.add_pod(name, run)
    first = runner.delete_pod(name)
    assert pods.wait_gone(name, first, PATIENCE_S)
    second = world.add_pod(name, run)
    assert not pods.wait_gone(name, second, 0), "another pod of that name is not this one"
    assert runner.delete_pod(name) == second
    assert pods.wait_gone(name, second, PATIENCE_S)


def test_a_termination_message_outlives_its_pod(world: World, pods: PodFollower, run: str) -> None:
    name, message = unique("pod"), termination_message(Cleanliness.CLEAN, "read after: nothing")
    world.add_pod(name, run, node="somewhere", role="inject")
    world.report(name, message)
    world.remove_pod(name)
    assert pods.wait_gone(name, None, 0) or pods.wait(lambda: gone(pods, name), PATIENCE_S)
    assert pods.wait(lambda: gone(pods, name), PATIENCE_S)
    seen = pods.seen(name)
    assert seen is not None
    assert (seen.role, seen.node, seen.termination, seen.ended) == ("inject", "somewhere", message, True)
    assert pods.present() == []


def gone(pods: PodFollower, name: str) -> bool:
    seen = pods.seen(name)
    return seen is not None and seen.gone


def test_a_later_pod_of_the_same_name_inherits_no_termination_message(
    world: World, pods: PodFollower, run: str
) -> None:
    name = unique("pod")
    for message in ("first", None):
        uid = world.add_pod(name, run, node="somewhere")
        if message:
            world.report(name, message)
        world.remove_pod(name)
        assert pods.wait_gone(name, uid, PATIENCE_S)
    seen = pods.seen(name)
    assert seen is not None
    assert seen.termination is None


def test_the_status_of_a_pod_is_seen(world: World, runner: Kubernetes, run: str) -> None:
    changes: list[PodSeen] = []
    name = unique("pod")
    with PodFollower(runner, run, changes.append) as pods:
        world.add_pod(name, run, role="canary")
        unfit = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/8 nodes"}
        world.core.patch_namespaced_pod_status(name, NAMESPACE, {"status": {"conditions": [unfit]}})
        assert pods.wait(lambda: (seen := pods.seen(name)) is not None and bool(seen.unschedulable), PATIENCE_S)
        ready = [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}]
        world.core.patch_namespaced_pod_status(name, NAMESPACE, {"status": {"phase": "Running", "conditions": ready}})
        assert pods.wait(lambda: (seen := pods.seen(name)) is not None and seen.ready, PATIENCE_S)
        world.report(name, None, "Failed", "DeadlineExceeded")
        assert pods.wait(lambda: (seen := pods.seen(name)) is not None and seen.ended, PATIENCE_S)
    assert any(seen.unschedulable == "0/8 nodes" and not seen.ready for seen in changes)
    last = changes[-1]
    assert (last.phase, last.reason, last.unschedulable, last.termination) == ("Failed", "DeadlineExceeded", None, None)


def test_the_pods_of_a_job_name_their_job(world: World, pods: PodFollower, run: str) -> None:
    world.add_job("resubmitted", run, node="somewhere")
    assert pods.wait(lambda: [seen.owner_job for seen in pods.present()] == ["resubmitted"], PATIENCE_S)


def test_an_expired_watch_reads_the_state_anew(world: World, runner: Kubernetes, run: str) -> None:
    before, between, after = unique("before"), unique("between"), unique("after")
    world.add_pod(before, run)
    with Follower(
        expiring_once(runner.core.list_namespaced_pod, lambda: churn(world, run, before, between)),
        namespace=NAMESPACE,
        label_selector=f"{RUN_LABEL}={run}",
    ) as pods:
        assert until(pods, lambda: pods.named(between) is not None and pods.named(before) is None)
        world.add_pod(after, run)
        assert until(pods, lambda: pods.named(after) is not None)
    assert runner.counter.cost().by_call["LIST pods"] == 1


def test_a_server_that_does_not_stream_lists_is_listed(world: World, runner: Kubernetes, run: str) -> None:
    name = unique("pod")
    world.add_pod(name, run)

    @functools.wraps(runner.core.list_namespaced_pod)
    def old(*arguments: Any, **options: Any) -> Any:
        # A real server answers 422, as the embedded one does to any other match.
        if options.get("send_initial_events"):
            options["resource_version_match"] = "Exact"
        return runner.core.list_namespaced_pod(*arguments, **options)

    with Follower(old, namespace=NAMESPACE, label_selector=f"{RUN_LABEL}={run}") as pods:
        pods.require_synced(PATIENCE_S)
        assert pods.named(name) is not None
        later = unique("pod")
        world.add_pod(later, run)
        assert until(pods, lambda: pods.named(later) is not None)
        assert not pods.trouble()
    assert runner.counter.cost().by_call == {"LIST pods": 1, "WATCH pods": 2}


def test_a_state_that_breaks_off_half_way_is_not_taken_for_the_whole(
    world: World, runner: Kubernetes, run: str
) -> None:
    names = [unique("pod") for _ in range(3)]
    for name in names:
        world.add_pod(name, run)

    class HalfWay:
        """An answer that ends after its first event."""

        def __init__(self, answer: Any) -> None:
            self._answer = answer

        def __getattr__(self, name: str) -> Any:
            return getattr(self._answer, name)

        def stream(self, *arguments: Any, **options: Any) -> Iterator[bytes]:
            text = b""
            for chunk in self._answer.stream(*arguments, **options):
                text += chunk
                if b"\n" in text:
                    yield text[: text.index(b"\n") + 1]
                    return

    @functools.wraps(runner.core.list_namespaced_pod)
    def call(*arguments: Any, **options: Any) -> Any:
        answer = runner.core.list_namespaced_pod(*arguments, **options)
        return HalfWay(answer) if options.get("send_initial_events") else answer

    with Follower(call, namespace=NAMESPACE, label_selector=f"{RUN_LABEL}={run}") as pods:
        pods.require_synced(PATIENCE_S)
        assert {pod.metadata.name for pod in pods.objects()} == set(names)
    assert runner.counter.cost().by_call == {"LIST pods": 1, "WATCH pods": 2}


@pytest.mark.timeout(20)
def test_a_refused_watch_is_reported_immediately_and_by_name(runner: Kubernetes) -> None:
    """The runner's account may not follow secrets."""
    with Follower(runner.core.list_namespaced_secret, namespace="kube-system") as secrets:
        with pytest.raises(WatchRefusedError) as caught:
            secrets.require_synced(PATIENCE_S)
        assert "watch secrets in namespace kube-system: 403" in str(caught.value)
    assert caught.value.status == 403
    assert 'cannot watch resource "secrets"' in str(caught.value)
    assert "deploy/rbac" in caught.value.hint
    assert "403" in secrets.trouble()


def churn(world: World, run: str, gone: str, new: str) -> None:
    world.remove_pod(gone)
    world.add_pod(new, run)


def expiring_once(list_call: Callable[..., Any], missed: Callable[[], None]) -> Callable[..., Any]:
    """Return a list call whose first watch is answered 410, after something happened that no watch will bring."""
    watched: list[int] = []

    @functools.wraps(list_call)
    def call(*arguments: Any, **options: Any) -> Any:
        if options.get("watch") and not watched:
            watched.append(1)
            missed()
            raise ApiException(status=410, reason="Expired")
        return list_call(*arguments, **options)

    return call


@pytest.mark.slow
def test_a_watch_survives_its_servers_restart(tmp_path: Path) -> None:
    world = World(tmp_path)
    try:
        with world.connected("gameday-runner") as runner, PodFollower(runner, "run") as pods:
            assert pods.wait_synced(PATIENCE_S)
            world.add_pod("before", "run", node="somewhere")
            assert pods.wait(lambda: pods.seen("before") is not None, PATIENCE_S)
            world.restart()
            world.add_pod("after", "run")
            assert pods.wait(lambda: pods.seen("after") is not None, PATIENCE_S)
            world.report("before", "written after the restart")
            uid = runner.delete_pod("before")
            assert pods.wait_gone("before", uid, PATIENCE_S)
            seen = pods.seen("before")
            assert seen is not None
            assert seen.termination == "written after the restart"
    finally:
        world.end()


@pytest.mark.timeout(30)
def test_a_silent_watch_ends_on_request(runner: Kubernetes, run: str) -> None:
    follower = PodFollower(runner, run)
    with follower:
        assert follower.wait_synced(PATIENCE_S)
        assert watching(), "the check below would see a thread"
    assert not watching()


def watching() -> list[str]:
    """Return the names of the threads that follow pods."""
    return [thread.name for thread in threading.enumerate() if thread.name == f"watch pods in namespace {NAMESPACE}"]


def test_a_watch_that_falls_silent_goes_on_over_a_new_connection(
    world: World, runner: Kubernetes, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load balancer can forget a connection: the server's bookmarks then come no more."""
    monkeypatch.setattr(list_watch, "_TIMEOUTS_S", (5.0, 1.0))  # the embedded server sends a bookmark every 5 s
    asked: list[dict[str, Any]] = []

    @functools.wraps(runner.core.list_namespaced_pod)
    def call(**options: Any) -> Any:
        asked.append(options)
        return runner.core.list_namespaced_pod(**options)

    with Follower(call, namespace=NAMESPACE, label_selector=f"{RUN_LABEL}={run}") as pods:
        pods.require_synced(PATIENCE_S)
        world.add_pod(unique("pod"), run)
        assert until(pods, lambda: len(pods.objects()) == 1)
        known = pods.objects()[0].metadata.resource_version
        deadline = time.monotonic() + PATIENCE_S
        while len(asked) < 3:
            assert time.monotonic() < deadline, pods.trouble()
            time.sleep(0.05)
        later = unique("pod")
        world.add_pod(later, run)
        assert until(pods, lambda: pods.named(later) is not None)
    assert asked[1]["resource_version"] == known
    assert "send_initial_events" not in asked[1]


# The embedded server lets a silent watch go after 15 s, a real one after minutes: a thread that waits for that hangs.
@pytest.mark.timeout(10)
@pytest.mark.parametrize("answered", [False, True])
def test_a_watch_that_is_just_being_opened_ends_on_request(runner: Kubernetes, run: str, answered: bool) -> None:
    """Stop it before the server has answered, and after that but before the answer has reached the follower."""
    opening = threading.Event()

    @functools.wraps(runner.core.list_namespaced_pod)
    def call(*arguments: Any, **options: Any) -> Any:
        answer = runner.core.list_namespaced_pod(*arguments, **options) if answered else None
        if options.get("watch"):
            opening.set()
            assert follower._stopping.wait(PATIENCE_S)
        return answer or runner.core.list_namespaced_pod(*arguments, **options)

    follower = Follower(call, namespace=NAMESPACE, label_selector=f"{RUN_LABEL}={run}")
    with follower:
        assert opening.wait(PATIENCE_S)


@pytest.mark.timeout(30)
def test_a_follower_of_a_server_that_is_away_ends_on_request(world: World, run: str) -> None:
    def away(*_: Any, **__: Any) -> Any:
        raise ApiException(status=503, reason="away")

    with Follower(functools.wraps(world.core.list_node)(away)) as nodes:
        assert not nodes.wait_synced(0)


def test_a_change_may_be_as_old_as_the_gap_that_it_comes_after() -> None:
    """A connection that goes on from a version brings what it missed right after it is up."""
    clock = VirtualClock()
    follower = Follower(lambda **_: None, None, lambda item: item, clock=clock)

    def unseen_s(after_s: float) -> float:
        clock.sleep(after_s)
        return follower.unseen_s

    def goes(*, up: bool) -> None:
        follower._take(list_watch.STATE, ("", ""), None) if up else setattr(follower, "_down_since", clock.monotonic())

    assert unseen_s(2) == 2  # it never was up
    goes(up=True)
    assert unseen_s(5) == 0
    goes(up=False)
    assert unseen_s(7) == 7
    goes(up=True)
    assert (unseen_s(0.5), unseen_s(1)) == (7.5, 0)
