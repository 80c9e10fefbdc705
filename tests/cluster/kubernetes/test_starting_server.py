"""An API server that has just started forbids everything until it knows its roles."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gameday.cluster.kubernetes import Kubernetes
from gameday.errors import KubernetesError
from tests.support.world import plain_adapter

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1"}}
FORBIDDEN = {"kind": "Status", "reason": "Forbidden", "message": "no RBAC policy matched", "code": 403}


class Starting(ThreadingHTTPServer):
    """A server that is not ready for its first `unready` /readyz; `asked` lists the paths in order."""

    def __init__(self, unready: int, forbids: bool) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.unready = unready
        self.forbids = forbids
        self.asked: list[str] = []


class Handler(BaseHTTPRequestHandler):
    server: Starting

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.path == "/readyz":
            self.server.unready -= 1
            self._answer(500 if self.server.unready >= 0 else 200, {})
        elif self.server.unready >= 0 or self.server.forbids:
            self._answer(403, FORBIDDEN)
        else:
            self._answer(200, NODE)

    def _answer(self, status: int, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Starting]:
    started = Starting(*request.param)
    thread = threading.Thread(target=started.serve_forever)
    thread.start()
    yield started
    started.shutdown()
    started.server_close()
    thread.join()


@pytest.fixture
def kubernetes(server: Starting, tmp_path: Path) -> Iterator[Kubernetes]:
    with plain_adapter(tmp_path, f"http://127.0.0.1:{server.server_port}") as found:
        yield found


@pytest.mark.parametrize("server", [(2, False)], indirect=True)
def test_a_forbidden_request_is_sent_again_once_the_server_is_ready(server: Starting, kubernetes: Kubernetes) -> None:
    assert kubernetes.node("gpu-1").metadata.name == "gpu-1"
    assert server.asked == ["/api/v1/nodes/gpu-1", "/readyz", "/readyz", "/readyz", "/api/v1/nodes/gpu-1"]
    assert kubernetes.counter.cost().requests == len(server.asked)


@pytest.mark.parametrize("server", [(0, True)], indirect=True)
def test_a_ready_server_is_believed_when_it_forbids(server: Starting, kubernetes: Kubernetes) -> None:
    with pytest.raises(KubernetesError, match="no RBAC policy matched") as caught:
        kubernetes.node("gpu-1")
    assert caught.value.status == 403
    assert server.asked == ["/api/v1/nodes/gpu-1", "/readyz", "/api/v1/nodes/gpu-1"]
