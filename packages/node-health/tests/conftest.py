"""Controller processes between an embedded API server and a log store, each of which can be ended and started."""

import json
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from gameday.errors import KubernetesError
from gameday.xid.lines import format_xid
from gameday_health.api import connect
from tests.support.ports import free_ports
from tests.support.streams import KERNEL_LOG

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
        status = self.running.wait(30)
        assert self.running.stdout is not None
        self.running.stdout.close()
        self.running = None
        return status


def eventually(read: Callable[[], Any], within_s: float = 60.0) -> Any:
    """Return the first reading that is neither None nor False; an AssertionError of `read` counts as not yet."""
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


class Servers:
    """An API server and a log store. Tests share them, each with nodes of its own; each can be ended and started."""

    def __init__(self, folder: Path) -> None:
        api_port, log_port = free_ports(2)
        self.apiserver = Process("kubesim.apiserver", "--port", api_port, "--data-dir", folder / "api")
        self.logs = Process("gameday_rehearsal.logstore", "--port", log_port, "--data-dir", folder / "logs")
        self.loki = f"http://127.0.0.1:{log_port}"

    def start(self) -> None:
        """Start every server that does not run."""
        for server in (self.apiserver, self.logs):
            if server.running is None:
                server.start()

    def stop(self) -> None:
        for server in (self.logs, self.apiserver):
            server.stop(kill=True)


class Cluster:
    """Nodes on shared servers and a controller. `n1` in a test is a node whose name no other test uses."""

    def __init__(self, servers: Servers, *options: str) -> None:
        servers.start()
        self.apiserver, self.logs, self.loki = servers.apiserver, servers.logs, servers.loki
        kubeconfig = Path(self.apiserver.ready["kubeconfig"])
        self.api = connect(kubeconfig, "gameday")
        self.health = Process("gameday_health", "--kubeconfig", kubeconfig, "--loki-url", self.loki, *options)
        self.names: dict[str, str] = {}
        # One for all: httpx reads the CA bundle, for 20 ms, for every client.
        self.http = httpx.Client(verify=False, timeout=30)

    def named(self, name: str) -> str:
        return self.names[name]

    def add_node(self, name: str, boot: str = "boot-1") -> None:
        node = self.names[name] = f"{name}-{uuid.uuid4().hex[:8]}"
        self.api.request(
            "POST", "/api/v1/nodes", {"metadata": {"name": node, "labels": {"kubernetes.io/hostname": node}}}
        )
        self.patch_node(name, {"spec": {"taints": None}})  # admission gives a new node the not-ready taint
        self.boot(name, boot)

    def remove_nodes(self) -> None:
        for node in self.names.values():
            self.api.request("DELETE", f"/api/v1/nodes/{node}")
        self.names.clear()

    def boot(self, name: str, boot: str) -> None:
        status = {"status": {"nodeInfo": {"bootID": boot}}}
        self.api.request("PATCH", f"/api/v1/nodes/{self.named(name)}/status", status)

    def node(self, name: str) -> dict[str, Any]:
        return self.api.request("GET", f"/api/v1/nodes/{self.named(name)}")

    def patch_node(self, name: str, patch: dict[str, Any]) -> None:
        self.api.request("PATCH", f"/api/v1/nodes/{self.named(name)}", patch)

    def taints(self, name: str) -> list[dict[str, str]]:
        found: list[dict[str, str]] = self.node(name)["spec"].get("taints") or []
        return found

    def annotations(self, name: str) -> dict[str, str]:
        return self.node(name)["metadata"].get("annotations") or {}

    def reason(self, name: str) -> dict[str, Any] | None:
        text = self.annotations(name).get("gameday.dev/faulty-reason")
        return json.loads(text) if text else None

    def checkpoint(self) -> dict[str, str]:
        path = "/api/v1/namespaces/gameday/configmaps/gameday-health"
        found: dict[str, str] = self.api.request("GET", path)["data"]
        return found

    def events(self, name: str) -> dict[str, dict[str, Any]]:
        items = self.api.request("GET", "/api/v1/namespaces/default/events")["items"]
        return {item["reason"]: item for item in items if item["involvedObject"]["name"] == self.named(name)}

    def push(self, line: str, node: str = "n1", at_ns: int | None = None, **labels: str) -> None:
        streams = {**KERNEL_LOG, "k8s_node_name": self.named(node), **labels}
        values = [[str(at_ns or time.time_ns()), line]]
        body = {"streams": [{"stream": streams, "values": values}]}
        assert self.http.post(f"{self.loki}/loki/api/v1/push", json=body).status_code == 204

    def metric(self, name: str, **labels: str) -> float | None:
        """Return the value of the one series with these labels, or None."""
        if "node" in labels:
            labels["node"] = self.named(labels["node"])
        text = self.http.get(self.health.ready["metrics"]).text
        for line in text.splitlines():
            found = re.fullmatch(rf"gameday_health_{name}(?:\{{(.*)\}})? (\S+)", line)
            if found and all(f'{key}="{value}"' in (found[1] or "") for key, value in labels.items()):
                return float(found[2])
        return None


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with ExitStack() as stack:
        servers = Servers(tmp_path_factory.mktemp("servers"))
        stack.callback(servers.stop)
        servers.start()
        api = connect(Path(servers.apiserver.ready["kubeconfig"]), "gameday")
        api.request("POST", "/api/v1/namespaces", {"metadata": {"name": "gameday"}})
        yield servers


@contextmanager
def a_cluster(servers: Servers, *options: str) -> Iterator[Cluster]:
    """Yield a cluster whose controller is not started; end it and leave nothing of it on the servers."""
    cluster = Cluster(servers, *options)
    try:
        yield cluster
    finally:
        cluster.health.stop(kill=True)
        cluster.http.close()
        servers.start()
        cluster.remove_nodes()
        with suppress(KubernetesError):  # a controller that handled no line left none
            cluster.api.request("DELETE", "/api/v1/namespaces/gameday/configmaps/gameday-health")


PCI = "0000:4e:00"
LOST = format_xid(79, PCI)


def stamped(line: str, uptime_s: float = 12.5) -> str:
    return f"[{uptime_s:12.6f}] {line}"


def active(cluster: Cluster, code: str = "79", node: str = "n1") -> float | None:
    return cluster.metric("gpu_fault_active", node=node, code=code)


def await_taint(cluster: Cluster, node: str = "n1") -> None:
    eventually(lambda: TAINT in cluster.taints(node))


def await_handled(cluster: Cluster, node: str = "n2") -> None:
    """Wait until all lines pushed before this call have been handled: a harmless line behind them has been."""
    before = cluster.metric("kernel_events_total", node=node, code="13") or 0
    cluster.push(stamped(format_xid(13, "0000:01:00"), time.monotonic()), node)
    eventually(lambda: (cluster.metric("kernel_events_total", node=node, code="13") or 0) > before)
