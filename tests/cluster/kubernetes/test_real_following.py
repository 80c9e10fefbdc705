"""Followers of the real API server: what the embedded one and scripted answers only imitate."""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gameday.cluster import list_watch
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.profile import ClusterProfile
from gameday.cluster.watch import Follower
from tests.rehearsal.lab.plane import Plane, running
from tests.support.world import PATIENCE_S, unique, until

pytestmark = pytest.mark.lab

RESTARTS_WITHIN_S = 90.0


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A control plane of this file's own, to kill parts of."""
    with running(tmp_path_factory.mktemp("lab")) as started:
        yield started


@pytest.fixture
def kubernetes(plane: Plane) -> Iterator[Kubernetes]:
    nowhere: Any = {"url": "http://127.0.0.1:9"}
    found = Kubernetes(ClusterProfile(kubeconfig=plane.admin, prometheus=nowhere, alertmanager=nowhere, loki=nowhere))
    yield found
    found.close()


class Maps:
    """ConfigMaps with a label of their own."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self.core = kubernetes.core
        self.label = {"test": unique("maps")}
        self.selection = {"namespace": "default", "label_selector": f"test={self.label['test']}"}

    def add(self) -> str:
        name = unique("map")
        self.core.create_namespaced_config_map("default", {"metadata": {"name": name, "labels": self.label}})
        return name

    def remove(self, name: str) -> None:
        self.core.delete_namespaced_config_map(name, "default")


@pytest.fixture
def maps(kubernetes: Kubernetes) -> Maps:
    return Maps(kubernetes)


def names(follower: Follower) -> set[str]:
    return {found.metadata.name for found in follower.objects()}


def kill_and_await(plane: Plane, follower: Follower) -> None:
    """Kill the API server, which its supervisor starts again, and wait until the follower is up again."""
    os.kill(plane.components()["kube-apiserver"]["pid"], signal.SIGKILL)
    deadline = time.monotonic() + RESTARTS_WITHIN_S
    while not follower.trouble():
        assert time.monotonic() < deadline, "the follower noticed nothing"
        time.sleep(0.01)
    while follower.trouble():
        assert time.monotonic() < deadline, follower.trouble()
        time.sleep(0.1)


def changing(list_call: Callable[..., Any], *changes: dict[str, Any]) -> Callable[..., Any]:
    """Return the list call with other options in its first requests; `seen` has those of all."""
    queue = list(changes)

    @functools.wraps(list_call)
    def call(**options: Any) -> Any:
        options |= queue.pop(0) if queue else {}
        call.seen.append(options)  # type: ignore[attr-defined]
        return list_call(**options)

    call.seen = []  # type: ignore[attr-defined]
    return call


def test_the_state_streams_and_its_changes_follow(kubernetes: Kubernetes, maps: Maps) -> None:
    old, before = {maps.add() for _ in range(3)}, kubernetes.counter.cost()
    with Follower(maps.core.list_namespaced_config_map, **maps.selection) as follower:
        follower.require_synced(PATIENCE_S)
        assert names(follower) == old
        new = maps.add()
        assert until(follower, lambda: new in names(follower))
        maps.remove(new)
        assert until(follower, lambda: names(follower) == old)
    calls = kubernetes.counter.cost().by_call
    assert calls["WATCH configmaps"] == 1
    assert calls.keys() - before.by_call.keys() == {"WATCH configmaps", "DELETE configmaps"}


def test_a_watch_that_its_server_ends_goes_on_where_it_was(maps: Maps) -> None:
    name = maps.add()
    call = changing(maps.core.list_namespaced_config_map, {"timeout_seconds": 2})
    notices: list[tuple[str, str]] = []
    with Follower(call, lambda kind, found: notices.append((kind, found.metadata.name)), **maps.selection) as follower:
        follower.require_synced(PATIENCE_S)
        deadline = time.monotonic() + PATIENCE_S
        while len(call.seen) < 2:  # type: ignore[attr-defined]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        new = maps.add()
        assert until(follower, lambda: new in names(follower))
    assert notices == [("ADDED", name), ("ADDED", new)]
    assert call.seen[1]["resource_version"].isdecimal()  # type: ignore[attr-defined]


def test_a_version_that_has_expired_is_read_anew(plane: Plane, maps: Maps) -> None:
    """Kill the API server: the new one's memory begins after version 1."""
    gone, stays = maps.add(), maps.add()
    call = changing(maps.core.list_namespaced_config_map, {}, {"resource_version": "1"})
    with Follower(call, **maps.selection) as follower:
        follower.require_synced(PATIENCE_S)
        kill_and_await(plane, follower)
        maps.remove(gone)
        new = maps.add()
        assert until(follower, lambda: names(follower) == {stays, new})
    asked = call.seen  # type: ignore[attr-defined]
    assert [options.get("resource_version") for options in asked[:3]] == [None, "1", None]
    assert asked[2]["send_initial_events"]


def test_a_server_that_refuses_to_stream_is_listed_in_pages(
    kubernetes: Kubernetes, maps: Maps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_watch, "_PAGE", 2)
    old = {maps.add() for _ in range(5)}
    call = changing(maps.core.list_namespaced_config_map, {"resource_version_match": "Exact"})
    with Follower(call, **maps.selection) as follower:
        follower.require_synced(PATIENCE_S)
        assert names(follower) == old
        new = maps.add()
        assert until(follower, lambda: new in names(follower))
    assert kubernetes.counter.cost().by_call["LIST configmaps"] == 3


def test_a_follower_outlives_its_api_server(plane: Plane, maps: Maps) -> None:
    old = maps.add()
    with Follower(maps.core.list_namespaced_config_map, **maps.selection) as follower:
        follower.require_synced(PATIENCE_S)
        kill_and_await(plane, follower)
        new = maps.add()
        assert until(follower, lambda: names(follower) == {old, new})


@pytest.mark.timeout(60)
def test_a_silent_watch_ends_on_request(maps: Maps) -> None:
    began = time.monotonic()
    with Follower(maps.core.list_namespaced_config_map, **maps.selection) as follower:
        follower.require_synced(PATIENCE_S)
    assert not follower._thread.is_alive()
    assert time.monotonic() - began < PATIENCE_S
