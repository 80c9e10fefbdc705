"""A real server process per module, and clients for it."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from kubernetes import client, config

DEADLINE_S = 20.0


def eventually(condition: Callable[[], Any], what: str) -> Any:
    """The first truthy value of `condition`, asked until the deadline."""
    ends = time.monotonic() + DEADLINE_S
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > ends:
            raise AssertionError(f"not within {DEADLINE_S:.0f} s: {what}")
        time.sleep(0.02)


class Server:
    """One `python -m kubesim.apiserver`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self.start()

    def start(self) -> None:
        argv = [sys.executable, "-m", "kubesim.apiserver", "--data-dir", str(self.folder)]
        self.process = subprocess.Popen([*argv, "--port", str(self.port)], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        self.ready = json.loads(line)
        self.url: str = self.ready["url"]
        self.port = int(self.url.rpartition(":")[2])

    def end(self, sent: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(sent)
        code = self.process.wait(10)
        self.process.stdout.close()
        return code

    def token(self, name: str = "admin") -> str:
        found = json.loads((self.folder / f"{name}.kubeconfig").read_text())
        return found["users"][0]["user"]["token"]

    def http(self, name: str = "admin", token: str = "") -> httpx.Client:
        headers = {"Authorization": f"Bearer {token or self.token(name)}", "User-Agent": "test-client/1.0"}
        return httpx.Client(base_url=self.url, headers=headers, verify=self.ssl(), timeout=20)

    def ssl(self) -> Any:
        import ssl

        return ssl.create_default_context(cafile=self.ready["ca"])

    def api(self, name: str = "admin") -> client.ApiClient:
        return config.new_client_from_config(str(self.folder / f"{name}.kubeconfig"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("apiserver"))
    yield running
    if running.process.poll() is None:
        running.end()


@pytest.fixture(scope="module")
def http(server: Server) -> Iterator[httpx.Client]:
    with server.http() as found:
        yield found


@pytest.fixture(scope="module")
def core(server: Server) -> client.CoreV1Api:
    return client.CoreV1Api(server.api())


@pytest.fixture(scope="module")
def kubectl(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl is not on PATH")
    cache = tmp_path_factory.mktemp("kubectl-cache")
    flags = [f"--kubeconfig={server.folder / 'admin.kubeconfig'}", f"--cache-dir={cache}"]

    def run(*words: str, stdin: str = "", fails: bool = False) -> str:
        argv = [program, *flags, *words]
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode != 0) is fails, f"kubectl {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    return run


def pod(name: str, **spec: Any) -> dict[str, Any]:
    """A minimal pod."""
    containers = [{"name": "main", "image": "busybox:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": containers, **spec},
    }


def node(name: str, **status: Any) -> dict[str, Any]:
    """A node that says it is Ready."""
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "lastHeartbeatTime": None}
    shown = {"capacity": {"cpu": "8", "nvidia.com/gpu": "8"}, "conditions": [ready], **status}
    labels = {"kubernetes.io/hostname": name}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": shown}


def make_running(http: httpx.Client, name: str, namespace: str = "default") -> None:
    """What a kubelet reports of a healthy pod."""
    state = {"name": "main", "ready": True, "restartCount": 0, "image": "busybox:1", "imageID": "",
             "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}  # fmt: skip
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"phase": "Running", "conditions": conditions, "containerStatuses": [state]}
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
    kind = {"Content-Type": "application/strategic-merge-patch+json"}
    answer = http.patch(path, content=json.dumps({"status": status}), headers=kind)
    assert answer.status_code == 200, answer.text
