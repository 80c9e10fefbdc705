"""The kubelet's pod-resources API is read as a gRPC server answers it, and every broken answer is an error in words."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gameday.errors import HostError
from gameday.host.pod_resources import SOCKET, _repeated, gpu_ids
from gameday.host.real import RealHost

GPU, OTHER = "GPU-11111111-aaaa", "GPU-22222222-bbbb"
OK = [("grpc-status", "0")]


def field(number: int, content: bytes | str) -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    assert len(raw) < 128 * 128
    length = bytes([len(raw)]) if len(raw) < 128 else bytes([len(raw) & 0x7F | 0x80, len(raw) >> 7])
    return bytes([number << 3 | 2]) + length + raw


def pod(namespace: str, name: str, *devices: tuple[str, list[str]]) -> bytes:
    """A PodResources message, with CPU ids (packed) and a topology (field 3) as a kubelet sends them."""
    listed = b"".join(
        field(2, field(1, resource) + b"".join(field(2, one) for one in ids) + field(3, field(1, b"\x08\x01")))
        for resource, ids in devices
    )
    return field(1, field(1, name) + field(2, namespace) + field(3, field(1, "agent") + listed + field(3, b"\x00\x01")))


def framed(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4) + message


@contextmanager
def kubelet(path: Path, body: bytes, trailers: list[tuple[str, str]] = OK, status: str = "200") -> Iterator[list[str]]:
    """Answer one call on a Unix socket over HTTP/2, with trailers as gRPC has them; yields the paths asked for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()
    asked: list[str] = []

    def serve() -> None:
        connected, _ = listening.accept()
        with connected, suppress(BrokenPipeError):  # the client closes as soon as it has its answer
            http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
            http.initiate_connection()
            connected.sendall(http.data_to_send())
            while raw := connected.recv(65536):
                for event in http.receive_data(raw):
                    if isinstance(event, h2.events.RequestReceived):
                        asked.append(dict(event.headers)[":path"])
                    if isinstance(event, h2.events.StreamEnded):
                        http.send_headers(event.stream_id, [(":status", status), ("content-type", "application/grpc")])
                        http.send_data(event.stream_id, body)
                        http.send_headers(event.stream_id, trailers, end_stream=True)
                connected.sendall(http.data_to_send())

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    try:
        yield asked
        serving.join(10)
        assert not serving.is_alive()
    finally:
        listening.close()


@pytest.fixture
def root() -> Iterator[Path]:
    """A host's root with a short path: a socket's may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="gd-") as folder:
        yield Path(folder)


def test_the_ids_of_one_pods_gpus_are_read(root) -> None:
    others = pod("team", "canary", ("nvidia.com/gpu", [OTHER])) + pod("gameday", "other", ("nvidia.com/gpu", [OTHER]))
    ours = pod("gameday", "canary", ("rdma/hca", ["mlx5_0"]), ("nvidia.com/gpu", [f"{GPU}::0", f"{GPU}::1"]))
    with kubelet(root / "proc/1/root" / SOCKET, framed(others + ours)) as asked:
        assert RealHost(root).pod_gpus("gameday", "canary") == (GPU,)
    assert asked == ["/v1.PodResourcesLister/List"]


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (framed(pod("gameday", "other", ("nvidia.com/gpu", [GPU]))), "200", "lists no GPU of pod gameday/canary"),
        (framed(pod("gameday", "canary", ("rdma/hca", ["mlx5_0"]))), "200", "lists no GPU of pod"),
        (framed(b""), "200", "lists no GPU of pod"),
        (b"", "200", "a broken frame of 0 bytes"),
        (framed(b"\x0a\x7f"), "200", "a field that ends behind its message"),
        (framed(b"\x0b"), "200", "wire type 3"),
        (framed(b"\xff" * 12), "200", "more than 64 bits"),
        (b"\1" + framed(b"x")[1:], "200", "a broken frame"),
        (b"no", "503", "refuses: HTTP 503"),
    ],
)
def test_an_answer_without_our_gpus_is_an_error(body, status, why, tmp_path) -> None:
    with kubelet(tmp_path / "s", body, status=status), pytest.raises(HostError, match=why):
        gpu_ids(tmp_path / "s", "gameday", "canary")


def test_a_socket_that_is_not_there_is_an_error(tmp_path) -> None:
    with pytest.raises(HostError, match=r"kubelet\.sock does not answer"):
        gpu_ids(tmp_path / "kubelet.sock", "gameday", "canary")


@given(st.binary(max_size=64))
def test_no_bytes_do_more_than_raise_a_value_error(raw: bytes) -> None:
    read: Callable[[], list[bytes]] = lambda: list(_repeated(raw, 1))  # noqa: E731
    try:
        read()
    except ValueError:
        return
