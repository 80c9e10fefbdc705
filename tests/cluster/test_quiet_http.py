"""Our small HTTP servers under clients that hold connections open, and with lengths that are none."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry, Gauge

from gameday.cluster.alert_receiver import AlertReceiver, ReceiverOptions
from gameday.cluster.metrics_server import serve_metrics
from gameday.cluster.quiet_http import MOST_CONNECTIONS

LOCAL = "127.0.0.1"
BODY = json.dumps(
    {"version": "4", "alerts": [{"status": "firing", "labels": {"alertname": "A"}, "startsAt": "2026-03-03T09:12:00Z"}]}
)
Ask = Callable[[], int]


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[AlertReceiver]:
    token = tmp_path / "token"
    token.write_text("secret-token")
    receiver = AlertReceiver(ReceiverOptions(LOCAL, 0, token), lambda alerts: len(alerts) == 1)
    receiver.start()
    yield receiver
    receiver.stop()


@pytest.fixture
def asking(receiver: AlertReceiver, request: pytest.FixtureRequest) -> tuple[int, Ask]:
    """A server's port, and a proper request to it, which returns the status."""
    if request.param == "alerts":
        headers = {"Authorization": "Bearer secret-token"}
        url = f"http://{LOCAL}:{receiver.port}/alerts"
        return receiver.port, lambda: httpx.post(url, content=BODY, headers=headers).status_code
    registry = CollectorRegistry()
    Gauge("seen", "Shown.", registry=registry)
    port = serve_metrics(registry, LOCAL, 0)
    return port, lambda: httpx.get(f"http://{LOCAL}:{port}/metrics").status_code


@pytest.mark.parametrize("asking", ["alerts", "metrics"], indirect=True)
def test_idle_connections_keep_nobody_out(asking: tuple[int, Ask]) -> None:
    port, ask = asking
    with ExitStack() as idle:
        held = [idle.enter_context(socket.create_connection((LOCAL, port))) for _ in range(3 * MOST_CONNECTIONS)]
        for one in held[-MOST_CONNECTIONS:]:
            one.sendall(b"P")
        assert [ask() for _ in range(3)] == [200, 200, 200]
        assert held[0].recv(1) == b"", "the oldest was not closed"


def test_a_request_that_is_worked_on_is_not_ended() -> None:
    with ExitStack() as idle:

        def take(alerts: object) -> bool:
            for _ in range(2 * MOST_CONNECTIONS):
                idle.enter_context(socket.create_connection((LOCAL, receiver.port)))
            # The last of them has been accepted when a request that came after it is answered.
            httpx.get(f"http://{LOCAL}:{receiver.port}/")
            return True

        receiver = AlertReceiver(ReceiverOptions(LOCAL, 0), take)
        receiver.start()
        assert httpx.post(f"http://{LOCAL}:{receiver.port}/alerts", content=BODY).status_code == 200
        receiver.stop()


@pytest.mark.parametrize(
    ("length", "status"),
    [("9" * 5000, 413), ("16777217", 413), ("-1", 411), ("0x10", 411), ("²", 411), ("", 411), ("3", 400)],
)
def test_a_length_that_is_none_is_answered(receiver: AlertReceiver, length: str, status: int) -> None:
    with socket.create_connection((LOCAL, receiver.port)) as connection:
        head = f"POST /alerts HTTP/1.1\r\nAuthorization: Bearer secret-token\r\nContent-Length: {length}\r\n\r\n[]\n"
        connection.sendall(head.encode("latin-1"))
        assert connection.makefile("rb").readline().split()[1] == str(status).encode()


def test_metrics_are_served_on_ipv6() -> None:
    port = serve_metrics(CollectorRegistry(), "::1", 0)
    assert httpx.get(f"http://[::1]:{port}/metrics").status_code == 200
