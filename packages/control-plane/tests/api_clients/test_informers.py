"""Clients that keep up with many objects: what a reflector of client-go does when its server goes and comes."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Literal

import pytest

from gameday_control_plane.api_clients import informers
from gameday_control_plane.api_clients.informers import Informers
from gameday_control_plane.api_clients.informers_order import InformersLine, InformersOrder
from gameday_control_plane.values.api_loads import Outcome
from tests.control_plane.api_clients.server import Play, hang_up, ok, refuse, serving
from tests.kubesim.processes import eventually

LIST = ok(b'{"metadata": {"resourceVersion": "5"}, "items": []}')
BOOKMARK = b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}\n'
GONE = ok(b'{"type": "ERROR", "object": {"code": 410, "reason": "Expired"}}\n')


def held_watch(released: threading.Event) -> Play:
    """Answer a watch with one bookmark, and leave it open."""

    def play(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(f"{len(BOOKMARK):x}\r\n".encode() + BOOKMARK + b"\r\n")
        handler.wfile.flush()
        released.wait(30)

    return play


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informers, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(informers, "_SETTLED_S", 0.05)


def outcomes(
    folder: Path, *plays: Play, count: int, keep_up: Literal["watch", "list"] = "watch"
) -> tuple[list[Outcome], list[str]]:
    """Return what happened to one client first, and the paths that it asked for."""
    lines: list[InformersLine] = []
    released = threading.Event()
    last = held_watch(released) if keep_up == "watch" else LIST
    with serving(folder, *plays, last) as server:
        order = InformersOrder(server=server.reached_as, path="/a", clients=1, keep_up=keep_up, interval_s=0.01)
        clients = Informers(order, lines.append)
        thread = threading.Thread(target=clients.run)
        thread.start()
        try:
            eventually(lambda: len(lines) >= count, "enough happenings")
        finally:
            clients.end()
            thread.join()
            released.set()
        return [line.happened.outcome for line in lines if line.happened][:count], [path for _, path, _ in server.asked]


@pytest.mark.parametrize(
    ("plays", "expected"),
    [
        # Cut off, it watches again from its last version, and LISTs nothing.
        ((LIST, ok(BOOKMARK), hang_up), "listed/watching/watch ended/no connection/watching"),
        ((LIST, refuse(429, Retry_After="0")), "listed/429/watching"),
        ((LIST, refuse(503), refuse(403)), "listed/5xx/other refusal/watching"),
        # Only a version that is not known any more makes it LIST: told by status, or as a watch's first event.
        ((LIST, refuse(410), LIST), "listed/410/listed/watching"),
        ((LIST, GONE, LIST), "listed/410/listed/watching"),
        ((refuse(429), LIST), "429/listed/watching"),
    ],
)
def test_a_client_comes_back_as_a_reflector_does(tmp_path: Path, plays: tuple[Play, ...], expected: str) -> None:
    wanted = [Outcome(word) for word in expected.split("/")]
    found, paths = outcomes(tmp_path, *plays, count=len(wanted))
    assert found == wanted
    assert "resourceVersion=0" in paths[0], "the first LIST may be as old as it likes"


def test_the_second_list_is_fresh(tmp_path: Path) -> None:
    _, paths = outcomes(tmp_path, LIST, refuse(410), LIST, count=4)
    assert paths[2] == "/a"


def test_a_watch_goes_on_from_the_last_bookmark(tmp_path: Path) -> None:
    _, paths = outcomes(tmp_path, LIST, ok(BOOKMARK), count=4)
    assert "resourceVersion=5" in paths[1]
    assert "resourceVersion=9" in paths[2]


def test_one_that_keeps_up_by_lists_asks_for_everything_again_and_again(tmp_path: Path) -> None:
    found, paths = outcomes(tmp_path, LIST, refuse(503), count=4, keep_up="list")
    assert found == [Outcome.LISTED, Outcome.UNAVAILABLE, Outcome.LISTED, Outcome.LISTED]
    assert not any("watch" in path for path in paths)
