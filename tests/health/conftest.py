"""The controller's process between an embedded API server and a log store, each of which can be ended and started."""

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from gameday.health.api import MERGE_PATCH, Api

KEY = "trainy.konduktor.ai/faulty"
TAINT = {"key": KEY, "value": "true", "effect": "NoSchedule"}


class Process:
    def __init__(self, module: str, *arguments: object) -> None:
        self.command = [sys.executable, "-m", module, *map(str, arguments)]
        self.running: subprocess.Popen[str] | None = None
        self.ready: dict[str, Any] = {}

    def start(self) -> None:
        self.running = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        assert self.running.stdout is not None
        line = self.running.stdout.readline()
        assert line, f"{self.command[2]} ended before it was ready"
        self.ready = json.loads(line)

    def stop(self, *, kill: bool = False) -> int | None:
        if self.running is None:
            return None
        if kill:
            self.running.kill()
        else:
            self.running.terminate()
        status = self.running.wait(10)
        assert self.running.stdout is not None
        self.running.stdout.close()
        self.running = None
        return status


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def eventually(read: Callable[[], Any], within_s: float = 20.0) -> Any:
    """What `read` returns once it is neither None nor False; an AssertionError of its own counts as not yet."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            found = read()
            if found is not None and found is not False:
                return found
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline, "not seen in time"
        time.sleep(0.05)


class Cluster:
    def __init__(self, folder: Path, *options: str) -> None:
        api_port, log_port = free_port(), free_port()
        self.apiserver = Process("gameday.rehearsal.apiserver", "--port", api_port, "--data-dir", folder / "api")
        self.logs = Process("gameday.rehearsal.logstore", "--port", log_port, "--data-dir", folder / "logs")
        self.loki = f"http://127.0.0.1:{log_port}"
        self.apiserver.start()
        self.logs.start()
        kubeconfig = Path(self.apiserver.ready["kubeconfig"])
        self.api = Api(kubeconfig)
        self.health = Process("gameday.health", "--kubeconfig", kubeconfig, "--loki-url", self.loki, *options)

    def add_node(self, name: str, boot: str = "boot-1") -> None:
        self.api.request("POST", "/api/v1/nodes", {"metadata": {"name": name}, "spec": {}})
        self.patch_node(name, {"spec": {"taints": None}})  # admission gives a new node the not-ready taint
        self.boot(name, boot)

    def boot(self, name: str, boot: str) -> None:
        self.api.request(
            "PATCH", f"/api/v1/nodes/{name}/status", {"status": {"nodeInfo": {"bootID": boot}}}, None, MERGE_PATCH
        )

    def node(self, name: str) -> dict[str, Any]:
        return self.api.request("GET", f"/api/v1/nodes/{name}")

    def patch_node(self, name: str, patch: dict[str, Any]) -> None:
        self.api.request("PATCH", f"/api/v1/nodes/{name}", patch, None, MERGE_PATCH)

    def taints(self, name: str) -> list[dict[str, str]]:
        found: list[dict[str, str]] = self.node(name)["spec"].get("taints") or []
        return found

    def reason(self, name: str) -> dict[str, Any] | None:
        text = (self.node(name)["metadata"].get("annotations") or {}).get("gameday.dev/faulty-reason")
        return json.loads(text) if text else None

    def events(self, name: str) -> dict[str, dict[str, Any]]:
        items = self.api.request("GET", "/api/v1/namespaces/default/events")["items"]
        return {item["reason"]: item for item in items if item["involvedObject"]["name"] == name}

    def push(self, line: str, node: str = "n1", at_ns: int | None = None) -> None:
        streams = {"k8s_daemonset_name": "dmesg", "k8s_node_name": node}
        values = [[str(at_ns or time.time_ns()), line]]
        body = {"streams": [{"stream": streams, "values": values}]}
        assert httpx.post(f"{self.loki}/loki/api/v1/push", json=body).status_code == 204

    def metric(self, name: str, **labels: str) -> float | None:
        """The one series with these labels, or None."""
        text = httpx.get(self.health.ready["metrics"]).text
        for line in text.splitlines():
            found = re.fullmatch(rf"gameday_health_{name}(?:\{{(.*)\}})? (\S+)", line)
            if found and all(f'{key}="{value}"' in (found[1] or "") for key, value in labels.items()):
                return float(found[2])
        return None

    def close(self) -> None:
        for process in (self.health, self.logs, self.apiserver):
            process.stop(kill=True)


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    with ExitStack() as stack:

        def make(*options: str) -> Cluster:
            cluster = Cluster(tmp_path, *options)
            stack.callback(cluster.close)
            return cluster

        yield make


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Two nodes, everything running."""
    cluster = make_cluster()
    cluster.add_node("n1")
    cluster.add_node("n2")
    cluster.health.start()
    return cluster
