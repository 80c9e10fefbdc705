"""An API server in front of kubesim that also serves what kubesim lacks: Deployments, Services, and their proxy."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from kubesim.kubeconfig import Kubeconfig

_PROMETHEUS = "/api/v1/namespaces/monitoring/services/prometheus-operated:9090/proxy"
_OURS = ("/api/v1/services", "/apis/apps/v1/deployments", _PROMETHEUS)
_HOP_BY_HOP = ("connection", "transfer-encoding", "content-length")


class ProxyingServer:
    """Answers by itself what real servers have and kubesim does not, and passes the rest on, watches included."""

    def __init__(self, folder: Path, kubeconfig: Path, prometheus: str = "") -> None:  # noqa: C901 - one handler
        behind = Kubeconfig.load(kubeconfig)
        self.deployments: list[dict[str, Any]] = []
        self.forbidden: set[str] = set()
        """Paths of ours that are answered with 403."""
        self.asked: list[tuple[str, str]] = []
        """Method and path of every request."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _any(self) -> None:
                server.asked.append((self.command, self.path))
                path = urlsplit(self.path).path
                mine = next((one for one in _OURS if path == one or path.startswith(f"{one}/")), None)
                if mine is None:
                    self._pass_on()
                elif mine in server.forbidden:
                    self._answer(403, {"message": f"this account may not: {mine}", "code": 403})
                elif mine == _PROMETHEUS:
                    self._prometheus(self.path.removeprefix(_PROMETHEUS))
                else:
                    items = server.deployments if mine.endswith("deployments") else _services(prometheus)
                    self._answer(200, {"items": items, "metadata": {}})

            do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = _any

            def _prometheus(self, path: str) -> None:
                found = httpx.get(prometheus + path, trust_env=False)
                self._answer(found.status_code, found.json())

            def _answer(self, status: int, body: dict[str, Any]) -> None:
                raw = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def _pass_on(self) -> None:
                to = urlsplit(behind.server)
                context = behind.tls if isinstance(behind.tls, ssl.SSLContext) else None
                connection = http.client.HTTPSConnection(str(to.hostname), to.port, context=context)
                with suppress(OSError, http.client.HTTPException):
                    body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                    kept = {
                        name: value
                        for name, value in self.headers.items()
                        if name.lower() not in ("host", *_HOP_BY_HOP)
                    }
                    connection.request(self.command, self.path, body or None, kept)
                    answer = connection.getresponse()
                    self.send_response(answer.status)
                    for name, value in answer.getheaders():
                        if name.lower() not in _HOP_BY_HOP:
                            self.send_header(name, value)
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    while chunk := answer.read1(65_536):
                        self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                    self.wfile.write(b"0\r\n\r\n")
                connection.close()

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        self.kubeconfig = folder / "proxied.kubeconfig"
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.kubeconfig.write_text(json.dumps(_kubeconfig(self.url, str(behind.token))))

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)


def _services(prometheus: str) -> list[dict[str, Any]]:
    if not prometheus:
        return []
    port = {"name": "http-web", "port": 9090}
    return [{"metadata": {"name": "prometheus-operated", "namespace": "monitoring"}, "spec": {"ports": [port]}}]


def _kubeconfig(url: str, token: str) -> dict[str, Any]:
    entry = {
        "name": "x",
        "cluster": {"server": url},
        "context": {"cluster": "x", "user": "x"},
        "user": {"token": token},
    }
    return {"current-context": "x", "clusters": [entry], "contexts": [entry], "users": [entry]}


def deployment(namespace: str, name: str, image: str, ready: int = 1, **container: Any) -> dict[str, Any]:
    """Return a Deployment as a list of them has it."""
    pod = {"containers": [{"name": name, "image": image, **container}]}
    return {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"template": {"spec": pod}},
        "status": {"readyReplicas": ready},
    }
