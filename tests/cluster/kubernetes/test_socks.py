"""An API server behind a bastion is reached by SOCKS5, names and all, by requests and by commands in pods."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer

import pytest
import yaml

from gameday.cluster.http import HttpServer
from gameday.cluster.kubeconfig import load_configuration
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.loki import LogStore
from gameday.cluster.pod_exec import run_in_pod
from gameday.cluster.profile import ClusterProfile, Endpoint
from gameday.errors import AdapterError
from tests.cluster.kubernetes.test_kubeconfig import content
from tests.observe.test_probes import SUCCESS, api_server, says

INSIDE = "api.inside.invalid"
"""A name that only the bastion resolves."""


class Bastion(ThreadingTCPServer):
    """A SOCKS5 proxy (RFC 1928) that takes every name for this machine."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Hop)
        self.asked: list[str] = []


class Hop(StreamRequestHandler):
    server: Bastion

    def handle(self) -> None:
        self.rfile.read(self.rfile.read(2)[1])
        self.wfile.write(b"\x05\x00")
        *_, kind = self.rfile.read(4)
        if kind != 3:  # an address, which the client has looked up itself
            self.server.asked.append("an address")
            return
        self.server.asked.append(self.rfile.read(self.rfile.read(1)[0]).decode())
        port = int.from_bytes(self.rfile.read(2), "big")
        with socket.create_connection(("127.0.0.1", port)) as there:
            self.wfile.write(b"\x05\x00\x00\x01" + bytes(6))
            back = threading.Thread(target=pump, args=(there, self.connection))
            back.start()
            pump(self.connection, there)
            back.join()


def pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while content := source.recv(65536):
            sink.sendall(content)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


@contextmanager
def bastion() -> Iterator[Bastion]:
    with Bastion() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def through(kubernetes: Kubernetes, proxy: str, folder: Path) -> Kubernetes:
    """Return a client of the same server that knows it by its name inside, and the way there."""
    port = kubernetes.server.rpartition(":")[2]
    cluster = {"server": f"http://{INSIDE}:{port}", "proxy-url": proxy}
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(content(user={"token": "t0ken"}, clusters=[{"name": "k", "cluster": cluster}])))
    nowhere = {name: {"url": "http://127.0.0.1:1"} for name in ("prometheus", "alertmanager", "loki")}
    return Kubernetes(ClusterProfile.model_validate({"name": "c", "kubeconfig": file, **nowhere}))


def test_a_command_in_a_pod_goes_by_the_bastion(tmp_path: Path) -> None:
    with api_server(tmp_path, says(b"\x01ok\n", SUCCESS)) as (direct, asked), bastion() as hop:
        kubernetes = through(direct, f"socks5://127.0.0.1:{hop.server_address[1]}", tmp_path)
        assert run_in_pod(kubernetes, "training", "job-1", None, ["true"], 5).output == "ok\n"
        kubernetes.close()
    assert (hop.asked, len(asked)) == ([INSIDE], 1)


def test_a_request_goes_by_the_bastion(tmp_path: Path) -> None:
    with api_server(tmp_path, says(), status=200) as (direct, asked), bastion() as hop:
        kubernetes = through(direct, f"socks5://127.0.0.1:{hop.server_address[1]}", tmp_path)
        with kubernetes.explained("read the version"):
            kubernetes.api.rest_client.request("GET", f"{kubernetes.server}/version")
        kubernetes.close()
    assert (hop.asked, len(asked)) == ([INSIDE], 1)


def test_prometheus_and_loki_may_be_behind_one_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with api_server(tmp_path, says(), status=200) as (direct, _), bastion() as hop:
        monkeypatch.setenv("HTTP_PROXY", f"socks5h://127.0.0.1:{hop.server_address[1]}")
        port = int(direct.server.rpartition(":")[2])
        assert HttpServer(Endpoint(url=f"http://{INSIDE}:{port}")).get("/api")
        with pytest.raises(AdapterError):  # it is no log store, but it answers
            LogStore(Endpoint(url=f"http://{INSIDE}:{port}")).open_tail("{}", 0)
    assert hop.asked == [INSIDE, INSIDE]


@pytest.mark.parametrize("url", ["ftp://10.0.0.1", "10.0.0.1:1080", "socks5://", "ssh://bastion"])
def test_another_proxy_is_refused_in_words(url: str, tmp_path: Path) -> None:
    cluster = {"server": f"https://{INSIDE}", "proxy-url": url}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(content(clusters=[{"name": "k", "cluster": cluster}])))
    with pytest.raises(AdapterError, match=r"its proxy-url .* is no http, https or socks5 URL"):
        load_configuration(file, None, in_cluster=False)
