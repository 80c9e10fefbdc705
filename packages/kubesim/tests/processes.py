"""kubesim's programs as processes of their own, and how tests wait for them."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from kubernetes import client, config

from kubesim.apiserver.resources import RESOURCES

# Waits end by conditions. These only end a test whose condition never comes, on a machine however busy.
PATIENCE_S = 60.0
# Made by the server itself; they would come back.
_BUILT_IN = {"default", "kube-root-ca.crt", "system-cluster-critical", "system-node-critical"}
_WIPED_IN = ("default", "kube-node-lease")


def eventually(condition: Callable[[], Any], what: str) -> Any:
    """Return the first truthy value of `condition`."""
    ends = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < ends, f"not within {PATIENCE_S:.0f} s: {what}"
        time.sleep(0.02)
    return value


class Program:
    """One `python -m MODULE`, which prints a line of JSON once it is ready."""

    def __init__(self, module: str, *arguments: str, log: Path) -> None:
        self.log = log
        self.ready: dict[str, Any] = {}
        self._argv = [sys.executable, "-m", module, *arguments]
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it and wait until it is ready."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._argv, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"{self._argv} ended before it was ready: {self.log.read_text()}"
        self.ready = json.loads(line)

    def end(self, sent: signal.Signals = signal.SIGTERM) -> int:
        """End it, unless it has ended, and return its exit status."""
        assert self.process is not None and self.process.stdout is not None
        self.process.send_signal(sent)
        code = self.process.wait(PATIENCE_S)
        self.process.stdout.close()
        return code


class ApiServer(Program):
    """An API server over a folder; it keeps its port when it is started again."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__("kubesim.apiserver", "--data-dir", str(folder), log=folder / "apiserver.log")
        self.folder = folder
        self.start()

    def start(self) -> None:
        super().start()
        self.url: str = self.ready["url"]
        self.port = int(self.url.rpartition(":")[2])
        if "--port" not in self._argv:
            self._argv += ["--port", str(self.port)]

    def token(self, name: str = "admin") -> str:
        found = json.loads((self.folder / f"{name}.kubeconfig").read_text())
        return found["users"][0]["user"]["token"]

    def http(self, name: str = "admin", token: str = "") -> httpx.Client:
        headers = {"Authorization": f"Bearer {token or self.token(name)}", "User-Agent": "test-client/1.0"}
        return httpx.Client(base_url=self.url, headers=headers, verify=self.tls(), timeout=PATIENCE_S, trust_env=False)

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.ready["ca"])

    def api(self, name: str = "admin") -> client.ApiClient:
        return config.new_client_from_config(str(self.folder / f"{name}.kubeconfig"))


def wipe(http: httpx.Client) -> None:
    """Delete what tests made in the default namespace and outside of namespaces, so that the next ones find none."""
    now = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
    for resource in RESOURCES:
        root = f"/apis/{resource.api_version}" if resource.group else "/api/v1"
        spaces = [f"/namespaces/{name}" for name in _WIPED_IN] if resource.namespaced else [""]
        for space in spaces if "deletecollection" in resource.verbs and "rbac" not in resource.group else ():
            path = f"{root}{space}/{resource.plural}"
            names = {item["metadata"]["name"] for item in http.get(path).raise_for_status().json()["items"]}
            for name in names - _BUILT_IN:
                http.request("DELETE", f"{path}/{name}", json=now)
