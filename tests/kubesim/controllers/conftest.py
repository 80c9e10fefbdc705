"""A real embedded API server and the real controllers' process, with small kubelets played by the test."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gameday.rehearsal.children import Child
from gameday.rehearsal.ports import free_ports
from kubesim.client import ApiClient, Reflector
from kubesim.kubeconfig import Kubeconfig

from .kubelets import Kubelets

STARTS_WITHIN_S = 20.0
EVENTUALLY_S = 20.0
MONITOR_GRACE_S = 2.0
KINDS = {
    "pods": "/api/v1/pods",
    "nodes": "/api/v1/nodes",
    "events": "/api/v1/events",
    "jobs": "/apis/batch/v1/jobs",
    "daemonsets": "/apis/apps/v1/daemonsets",
    "budgets": "/apis/policy/v1/poddisruptionbudgets",
}


class Cluster:
    """What a test sees and does: live copies of all objects, and one way to wait for them to be as expected."""

    def __init__(self, api: ApiClient, apiserver: Child, controllers: Child) -> None:
        self.api = api
        self.apiserver = apiserver
        self.controllers = controllers
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
        """Wait for a condition over the live copies; says what was awaited and how things stand if it never comes."""
        try:
            async with asyncio.timeout(EVENTUALLY_S):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            state = [
                (pod["metadata"]["name"], pod["spec"].get("nodeName"), pod.get("status")) for pod in self.all("pods")
            ]
            log = self.controllers.log.read_text()
            pytest.fail(f"never came: {what}\npods: {state}\ncontrollers' log:\n{log}")


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[tuple[Child, Child]]:
    data, python = tmp_path / "apiserver", sys.executable
    server = ["--port", str(free_ports(1)[0]), "--data-dir", str(data)]
    apiserver = Child("apiserver", [python, "-m", "kubesim.apiserver", *server], tmp_path / "apiserver.log")
    knobs = ["--node-monitor-grace", str(MONITOR_GRACE_S), "--job-backoff", "0.1", "--pod-gc-quarantine", "0.2"]
    identities = ["--kubeconfig-scheduler", str(data / "scheduler.kubeconfig")]
    identities += ["--kubeconfig-controllers", str(data / "controllers.kubeconfig")]
    argv = [python, "-m", "kubesim.controllers", *identities, *knobs]
    controllers = Child("controllers", argv, tmp_path / "controllers.log")
    try:
        apiserver.start()
        apiserver.await_ready_line(STARTS_WITHIN_S)
        controllers.start()
        controllers.await_ready_line(STARTS_WITHIN_S)
        yield apiserver, controllers
    finally:
        controllers.end()
        apiserver.end()


@pytest.fixture
async def cluster(processes: tuple[Child, Child], tmp_path: Path) -> AsyncIterator[Cluster]:
    kubeconfig = Kubeconfig.load(tmp_path / "apiserver" / "admin.kubeconfig")
    async with ApiClient(kubeconfig, "test") as api:
        made = Cluster(api, *processes)
        running = asyncio.create_task(made.run())
        yield made
        broken = running.done() and running.exception()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    if broken:
        raise broken
