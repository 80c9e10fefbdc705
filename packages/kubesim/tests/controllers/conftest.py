"""An API server and the controllers' process, with small kubelets played by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kubesim.client import ApiClient, Reflector
from kubesim.kubeconfig import Kubeconfig
from tests.kubesim.processes import PATIENCE_S, ApiServer, Program, eventually, wipe

from .kubelets import Kubelets

# Seconds of silence after which a node is given up: never, in tests that are about something else.
LONG_GRACE_S, SHORT_GRACE_S = 3600.0, 3.0
KINDS = {
    "pods": "/api/v1/pods",
    "nodes": "/api/v1/nodes",
    "events": "/api/v1/events",
    "jobs": "/apis/batch/v1/jobs",
    "daemonsets": "/apis/apps/v1/daemonsets",
    "budgets": "/apis/policy/v1/poddisruptionbudgets",
}


class Processes:
    """The API server and the controllers of one cluster."""

    def __init__(self, folder: Path, grace_s: float) -> None:
        self.apiserver = ApiServer(folder / "apiserver")
        data = self.apiserver.folder
        self.controllers = Program(
            "kubesim.controllers",
            *("--kubeconfig-scheduler", str(data / "scheduler.kubeconfig")),
            *("--kubeconfig-controllers", str(data / "controllers.kubeconfig")),
            *("--node-monitor-grace", str(grace_s), "--job-backoff", "0.1", "--pod-gc-quarantine", "0.2"),
            log=folder / "controllers.log",
        )
        self.controllers.start()

    def end(self) -> None:
        self.controllers.end()
        self.apiserver.end()


class Cluster:
    """Live copies of all objects, and one way to wait for them to be as expected."""

    def __init__(self, api: ApiClient, processes: Processes) -> None:
        self.api = api
        self.apiserver = processes.apiserver
        self.controllers = processes.controllers
        self.kubelets = Kubelets(api)
        self._changed = asyncio.Event()
        self._reflectors = {kind: Reflector(api, path) for kind, path in KINDS.items()}
        for reflector in self._reflectors.values():
            reflector.on(self._note, self._note, self._note)

    def _note(self, *_: Any) -> None:
        self._changed.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.kubelets.run())
            for reflector in self._reflectors.values():
                group.create_task(reflector.run())

    def all(self, kind: str, where: Callable[[Any], object] = lambda _: True) -> list[Any]:
        return [obj for obj in self._reflectors[kind].store.values() if where(obj)]

    def one(self, kind: str, name: str) -> Any:
        found = self.all(kind, lambda obj: obj["metadata"]["name"] == name)
        return found[0] if found else None

    def pods_of(self, owner: str) -> list[Any]:
        return [
            pod
            for pod in self.all("pods")
            if any(ref["name"] == owner for ref in pod["metadata"].get("ownerReferences") or ())
        ]

    def reasons(self, name: str) -> set[str]:
        return {event["reason"] for event in self.all("events") if event["involvedObject"]["name"] == name}

    async def until(self, what: str, holds: Callable[[], object]) -> None:
        """Wait for a condition over the live copies; fail with their state if it never comes."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            state = [
                (pod["metadata"]["name"], pod["spec"].get("nodeName"), pod.get("status")) for pod in self.all("pods")
            ]
            log = self.controllers.log.read_text()
            pytest.fail(f"never came: {what}\npods: {state}\ncontrollers' log:\n{log}")


@contextmanager
def running(folder: Path, grace_s: float) -> Iterator[Processes]:
    processes = Processes(folder, grace_s)
    try:
        yield processes
    finally:
        processes.end()


@pytest.fixture(scope="session")
def shared_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with running(tmp_path_factory.mktemp("controllers"), LONG_GRACE_S) as processes:
        yield processes


@pytest.fixture
def processes(shared_processes: Processes) -> Iterator[Processes]:
    """The shared cluster, empty: controllers end what they had begun before the next test begins."""
    yield shared_processes
    with shared_processes.apiserver.http() as http:

        def is_empty() -> bool:
            wipe(http)
            left = [http.get(path).json()["items"] for path in (*KINDS.values(), "/api/v1/events")]
            return not any(left)

        eventually(is_empty, "an empty cluster")


@pytest.fixture
def own_processes(tmp_path: Path) -> Iterator[Processes]:
    """A cluster for a test that ends or restarts its processes, or waits for a node to be given up."""
    with running(tmp_path, SHORT_GRACE_S) as processes:
        yield processes


@pytest.fixture
async def cluster(processes: Processes) -> AsyncIterator[Cluster]:
    async for made in _clusters(processes):
        yield made


@pytest.fixture
async def own_cluster(own_processes: Processes) -> AsyncIterator[Cluster]:
    async for made in _clusters(own_processes):
        yield made


async def _clusters(processes: Processes) -> AsyncIterator[Cluster]:
    kubeconfig = Kubeconfig.load(processes.apiserver.folder / "admin.kubeconfig")
    async with ApiClient(kubeconfig, "test") as api:
        made = Cluster(api, processes)
        task = asyncio.create_task(made.run())
        yield made
        broken = task.done() and task.exception()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    if broken:
        raise broken
