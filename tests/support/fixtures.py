"""Fixtures for every test: one API server per worker, clients of it, runs against it, and a mock of NVML."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gameday.cluster.kubernetes import Kubernetes
from gameday.plan.models import Plan
from gameday.run.run import Run
from tests.support.mock_nvml import MockNvml, compile_nvml
from tests.support.runs import close_run, quick_plan, unopened_run
from tests.support.world import Administrator, World, unique

NewRun = Callable[..., Run]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        world = World(tmp_path_factory.mktemp("world"))
        stack.callback(world.end)
        yield world


@pytest.fixture
def world(server: World) -> Iterator[World]:
    """The worker's API server; what a test leaves in it is deleted."""
    yield server
    server.clear()


@pytest.fixture
def runner(world: Administrator) -> Iterator[Kubernetes]:
    with world.connected("gameday-runner") as kubernetes:
        yield kubernetes


@pytest.fixture
def reaper(world: Administrator) -> Iterator[Kubernetes]:
    with world.connected("gameday-reaper") as kubernetes:
        yield kubernetes


@pytest.fixture
def new_run(world: Administrator, tmp_path: Path) -> Iterator[NewRun]:
    """Make runs whose only server is the API server; nothing of them is started yet."""
    runs: list[Run] = []

    def make(
        running_pods: str = "any",
        *,
        change: Callable[[Plan], Plan] = lambda plan: plan,
        profile: dict[str, Any] | None = None,
        **targets: Any,
    ) -> Run:
        """Return a run; `change` and `profile` change the quick plan and the runner's profile."""
        folder = tmp_path / unique("run")
        folder.mkdir()
        cluster = world.profile_of("gameday-runner").model_copy(update=profile or {})
        loaded = quick_plan(running_pods, **targets)
        changed = replace(loaded, plan=change(loaded.plan))
        run = unopened_run(folder, folder.name, changed, cluster, clock=world.clock, connect=world.connect)
        runs.append(run)
        return runs[-1]

    yield make
    for run in runs:
        close_run(run)


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_nvml(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def mock_nvml(nvml_library: Path, tmp_path: Path) -> MockNvml:
    """A mock NVML that shows nothing yet."""
    return MockNvml(nvml_library, tmp_path / "nvml-state")
