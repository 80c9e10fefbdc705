from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from gameday.cluster.kubernetes import Kubernetes
from tests.cluster.kubernetes.world import World


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        world = World(tmp_path_factory.mktemp("world"))
        stack.callback(world.end)
        yield world


@pytest.fixture
def world(server: World) -> Iterator[World]:
    yield server
    server.clear()


@pytest.fixture
def runner(world: World) -> Iterator[Kubernetes]:
    with world.connected("gameday-runner") as kubernetes:
        yield kubernetes


@pytest.fixture
def reaper(world: World) -> Iterator[Kubernetes]:
    with world.connected("gameday-reaper") as kubernetes:
        yield kubernetes
