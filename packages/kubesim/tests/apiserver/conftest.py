"""kubectl on the shared server, and the objects that the tests here have in common."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.kubesim.processes import PATIENCE_S, ApiServer


@pytest.fixture(scope="module")
def kubectl(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl is not on PATH")
    cache = tmp_path_factory.mktemp("kubectl-cache")
    flags = [f"--kubeconfig={server.folder / 'admin.kubeconfig'}", f"--cache-dir={cache}"]

    def run(*words: str, stdin: str = "", fails: bool = False) -> str:
        argv = [program, *flags, *words]
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
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
