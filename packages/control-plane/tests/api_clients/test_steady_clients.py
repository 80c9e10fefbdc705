"""Steady clients: a connection that ends under a request, an answer that is no success, and nobody there."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from gameday_control_plane.api_clients.steady_clients import SteadyClients
from gameday_control_plane.api_clients.steady_order import SteadyLine, SteadyOrder
from tests.control_plane.api_clients.server import Play, hang_up, ok, refuse, serving
from tests.kubesim.processes import eventually


@pytest.mark.parametrize(
    ("plays", "asked", "expected"),
    [
        # Cut once: sent again over another connection, and no failure.
        ((ok(), hang_up, ok()), 4, {"lost": 0, "refused": 0, "cut": 1, "reconnects": 1}),
        ((ok(), hang_up, hang_up, ok()), 5, {"lost": 1, "refused": 0, "cut": 1, "reconnects": 1}),
        ((ok(), refuse(503), ok()), 4, {"lost": 0, "refused": 1, "cut": 0, "reconnects": 0}),
    ],
)
def test_what_happens_to_requests_is_counted_apart(
    tmp_path: Path, plays: tuple[Play, ...], asked: int, expected: dict[str, int]
) -> None:
    lines: list[SteadyLine] = []
    with serving(tmp_path, *plays) as server:
        order = SteadyOrder(server=server.reached_as, path="/a", clients=1, rate=50, protocol="http1", watch_only=False)
        clients = SteadyClients(order, lines.append)
        thread = threading.Thread(target=clients.run)
        thread.start()
        try:
            eventually(lambda: len(server.asked) >= asked, "enough requests")
        finally:
            clients.end()
            thread.join()
    assert [line.connected for line in lines].count(True) == 1
    seconds = [line.second for line in lines if line.second]
    assert {name: sum(getattr(second, name) for second in seconds) for name in expected} == expected
    assert sum(second.requests for second in seconds) >= asked - expected["cut"] - expected["lost"] - 1
