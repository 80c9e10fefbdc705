"""Machines on a clock that tests move by hand, and a real cluster: API server, log store and nodes as processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from gameday_rehearsal.nodes.dcgm import DcgmCache
from gameday_rehearsal.nodes.gpus import GpuFleet
from gameday_rehearsal.nodes.kernel_log import KernelRecord
from gameday_rehearsal.nodes.machine import Machine

DEADLINE_S = 30.0


class Clock:
    """Monotonic seconds, moved by the test."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Rack:
    """Two machines of four GPUs on one clock; `shipped` is what went to the log store."""

    clock: Clock
    fleet: GpuFleet
    cache: DcgmCache
    machines: list[Machine]
    shipped: list[tuple[str, KernelRecord]] = field(default_factory=list)


def new_rack() -> Rack:
    clock = Clock()
    names = ["a", "b"]
    fleet = GpuFleet(names, 4, clock)
    cache = DcgmCache(fleet, clock)
    shipped: list[tuple[str, KernelRecord]] = []
    ship = lambda node, record: shipped.append((node, record))  # noqa: E731
    machines = [Machine(index, name, fleet, cache, ship, boot_s=0.05) for index, name in enumerate(names)]
    return Rack(clock, fleet, cache, machines, shipped)


@pytest.fixture
def rack() -> Rack:
    return new_rack()


@pytest.fixture
def machine(rack: Rack) -> Machine:
    return rack.machines[0]


def eventually(condition: Callable[[], Any], what: str) -> Any:
    """The first truthy value of `condition`, asked until the deadline."""
    ends = time.monotonic() + DEADLINE_S
    while not (value := condition()):
        if time.monotonic() > ends:
            raise AssertionError(f"not within {DEADLINE_S:.0f} s: {what}")
        time.sleep(0.02)
    return value


class Program:
    """One of the rehearsal's processes, from its ready line to its SIGTERM."""

    def __init__(self, module: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        self.ready: dict[str, Any] = json.loads(line)

    def end(self, sent: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Exit status and standard error."""
        if self.process.poll() is None:
            self.process.send_signal(sent)
        _, error = self.process.communicate(timeout=60)
        return self.process.returncode, error


class Cluster:
    """An API server, a log store and three nodes of four GPUs, with the few calls the tests make."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.api = Program("kubesim.apiserver", "--data-dir", str(folder / "api"))
        self.logs = Program("gameday_rehearsal.logstore")
        self.kubeconfig = self.api.ready["kubeconfig"]
        user = json.loads(Path(self.kubeconfig).read_text())["users"][0]["user"]
        import ssl

        self.http = httpx.Client(
            base_url=self.api.ready["url"],
            headers={"Authorization": f"Bearer {user['token']}"},
            verify=ssl.create_default_context(cafile=self.api.ready["ca"]),
            timeout=60,
        )
        self.nodes = self.start_nodes()

    def start_nodes(self) -> Program:
        return Program(
            "gameday_rehearsal.nodes",
            *("--kubeconfig", self.kubeconfig, "--nodes", "3", "--gpus", "4", "--loki-url", self.logs.ready["url"]),
            *("--state-dir", str(self.folder / "state"), "--boot-seconds", "0.5"),
            *("--tls-folder", str(self.folder / "api")),
        )

    def end(self) -> None:
        self.http.close()
        for program in (self.nodes, self.logs, self.api):
            program.end()

    def host(self, node: str) -> str:
        return f"{self.nodes.ready['hosts']}/{node}"

    def node(self, name: str) -> dict[str, Any]:
        return self.http.get(f"/api/v1/nodes/{name}").raise_for_status().json()

    def create(self, pod: dict[str, Any]) -> None:
        self.http.post("/api/v1/namespaces/default/pods", json=pod).raise_for_status()

    def pod(self, name: str) -> dict[str, Any] | None:
        answer = self.http.get(f"/api/v1/namespaces/default/pods/{name}")
        return None if answer.status_code == 404 else answer.raise_for_status().json()

    def delete(self, name: str, **options: Any) -> None:
        self.http.request("DELETE", f"/api/v1/namespaces/default/pods/{name}", json=options).raise_for_status()

    def phase(self, name: str, phase: str) -> dict[str, Any]:
        """The pod once it is in that phase."""
        return eventually(
            lambda: (pod := self.pod(name)) and pod["status"].get("phase") == phase and pod, f"pod {name} {phase}"
        )

    def is_ready(self, name: str) -> bool:
        pod = self.pod(name) or {"status": {}}
        return {c["type"]: c["status"] for c in pod["status"].get("conditions", [])}.get("Ready") == "True"

    def gone(self, name: str) -> None:
        eventually(lambda: self.pod(name) is None, f"pod {name} gone")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("cluster"))
    yield running
    running.end()


def simulated(name: str, node: str, *, gpus: int = 0, policy: str = "Never", **annotations: str) -> dict[str, Any]:
    """A pod of a foreign image; annotations `run_for`, `exit_code`, `gpu_load`."""
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    prefix = "virtual-node.gameday.dev/"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "annotations": {prefix + key.replace("_", "-"): value for key, value in annotations.items()},
        },
        "spec": {
            "nodeName": node,
            "restartPolicy": policy,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "registry.example/train:1", "resources": resources}],
        },
    }


def agent(name: str, node: str, task: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A pod of the real agent, as the orchestrator's template makes it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 20,
            "volumes": [{"name": "run", "emptyDir": {}}],
            "containers": [
                {
                    "name": "agent",
                    "image": "ghcr.io/gpu-gameday/agent:0.1.0",
                    "env": [
                        {"name": "GAMEDAY_TASK", "value": json.dumps({"run_id": "r", "node": node, **task})},
                        {"name": "GAMEDAY_STATE_DIR", "value": "/run/gameday"},
                    ],
                    "volumeMounts": [{"name": "run", "mountPath": "/run/gameday"}],
                    "readinessProbe": {"exec": {"command": ["cat", "/run/gameday/ready"]}, "periodSeconds": 1},
                }
            ],
            **spec,
        },
    }
