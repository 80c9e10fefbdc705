"""A client that follows objects: what it asks for in each mode, what it sees of changes, and what it counts."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from gameday_control_plane.api_clients.follower import Follower, FollowerLine, FollowOrder
from gameday_control_plane.values.api_loads import FollowMode
from tests.control_plane.api_clients.server import Server, ok, refuse, serving
from tests.kubesim.processes import eventually

SECRETS = "/api/v1/namespaces/gameday-load/secrets"


def one(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "data": {}}


class Cluster:
    """Two Secrets, answered in pages where the client asks for them, and a watch that brings what a test puts in."""

    def __init__(self, server: Server) -> None:
        self.objects = {"a": one("a", 1), "b": one("b", 2)}
        self.events: list[dict[str, Any]] = []
        self.version = 2
        self.watches_open = 0
        self.ended = False
        self.changed = threading.Condition()
        server.play(self.answer)

    def change(self, name: str) -> None:
        with self.changed:
            self.version += 1
            self.objects[name] = one(name, self.version)
            self.events.append({"type": "MODIFIED", "object": self.objects[name]})
            self.changed.notify_all()

    def send(self, **event: Any) -> None:
        with self.changed:
            self.events.append(event)
            self.changed.notify_all()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if parts.path != SECRETS:
            return ok(json.dumps(self.objects[parts.path.rpartition("/")[2]]).encode())(handler)
        if "watch" in query:
            return self.watch(handler)
        items, more = list(self.objects.values()), ""
        if "limit" in query:
            items, more = (items[1:], "") if "continue" in query else (items[:1], "next")
        body = {"metadata": {"resourceVersion": str(self.version), "continue": more}, "items": items}
        return ok(json.dumps(body).encode())(handler)

    def watch(self, handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        sent = len(self.events)
        with self.changed:
            self.watches_open += 1
            while not self.ended:
                for event in self.events[sent:]:
                    handler.wfile.write(json.dumps(event).encode() + b"\n")
                    if event["type"] == "ERROR":
                        handler.close_connection = True
                        return
                sent = len(self.events)
                self.changed.wait(60)

    def end(self) -> None:
        with self.changed:
            self.ended = True
            self.changed.notify_all()


class Play:
    """A follower in a thread, its lines, and the cluster that it follows."""

    def __init__(self, server: Server, mode: FollowMode, interval_s: float) -> None:
        self.server = server
        self.cluster = Cluster(server)
        self.lines: list[FollowerLine] = []
        order = FollowOrder(server=server.reached_as, resource="secrets", mode=mode, interval_s=interval_s)
        self.follower = Follower(order, self.lines.append)
        self.thread = threading.Thread(target=self.follower.run)

    @property
    def seen(self) -> list[tuple[str, int]]:
        return [(sighting.name, sighting.version) for line in self.lines for sighting in line.seen]

    def queries(self) -> list[dict[str, str]]:
        parts = [urlsplit(path) for _, path, _ in self.server.asked if urlsplit(path).path == SECRETS]
        return [{key: values[0] for key, values in parse_qs(part.query).items()} for part in parts]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Callable[..., Play]]:
    begun: list[Play] = []
    with serving(tmp_path) as server:

        def begin(mode: FollowMode, interval_s: float = 0.01) -> Play:
            begun.append(Play(server, mode, interval_s))
            begun[0].thread.start()
            eventually(lambda: any(line.synced for line in begun[0].lines), "the client has seen every object")
            return begun[0]

        yield begin
        for one in begun:
            one.cluster.end()
            one.follower.end()
            one.thread.join()


@pytest.mark.parametrize(
    ("mode", "query"),
    [
        (FollowMode.POLL, {}),
        (FollowMode.POLL_CACHED, {"resourceVersion": "0"}),
        (FollowMode.PAGES, {"limit": "500"}),
    ],
)
def test_a_polling_client_lists_again_and_again(
    play: Callable[..., Play], mode: FollowMode, query: dict[str, str]
) -> None:
    playing = play(mode)
    playing.cluster.change("b")
    eventually(lambda: playing.seen, "the change is seen")
    assert playing.seen == [("b", 3)], "and only what changed since the first view"
    assert playing.queries()[0] == query
    assert playing.follower.traffic.watches == playing.follower.traffic.gets == 0


def test_pages_are_one_view(play: Callable[..., Play]) -> None:
    playing = play(FollowMode.PAGES, interval_s=3600)
    assert playing.queries() == [{"limit": "500"}, {"limit": "500", "continue": "next"}]
    assert playing.follower.traffic.lists == 2
    assert playing.seen == [], "the first view is no change"


@pytest.mark.parametrize(("mode", "gets"), [(FollowMode.INFORMER, 0), (FollowMode.METADATA, 2)])
def test_a_watching_client_lists_once(play: Callable[..., Play], mode: FollowMode, gets: int) -> None:
    playing = play(mode)
    eventually(lambda: playing.cluster.watches_open, "the watch is open")
    playing.cluster.change("a")
    playing.cluster.send(type="BOOKMARK", object=one("", 9))
    playing.cluster.change("b")
    eventually(lambda: len(playing.seen) == 2, "both changes are seen")
    assert [name for name, _ in playing.seen] == ["a", "b"]
    traffic = playing.follower.traffic
    assert (traffic.lists, traffic.watches, traffic.gets, traffic.failed) == (1, 1, gets, 0)
    assert playing.queries()[1]["resourceVersion"] == "2"
    (accepts,) = {headers["Accept"] for _, path, headers in playing.server.asked if "watch=1" in path}
    assert ("PartialObjectMetadata" in accepts) == (mode is FollowMode.METADATA)


def test_a_watch_that_is_too_old_is_listed_anew(play: Callable[..., Play]) -> None:
    playing = play(FollowMode.INFORMER)
    eventually(lambda: playing.cluster.watches_open, "the watch is open")
    playing.cluster.objects["a"] = one("a", 7)
    playing.cluster.version = 7
    playing.cluster.send(type="ERROR", object={"kind": "Status", "code": 410})
    eventually(lambda: playing.cluster.watches_open == 2, "a second watch is open")
    assert playing.seen == [("a", 7)]
    assert playing.queries()[-1]["resourceVersion"] == "7"


def test_a_refusal_is_counted_and_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gameday_control_plane.api_clients.follower._PAUSE_S", 0.01)
    lines: list[FollowerLine] = []
    with serving(tmp_path) as server:
        body = json.dumps({"metadata": {"resourceVersion": "1"}, "items": []}).encode()
        server.play(refuse(429), ok(b"no json"), ok(body))
        order = FollowOrder(server=server.reached_as, resource="secrets", mode=FollowMode.POLL, interval_s=3600)
        follower = Follower(order, lines.append)
        thread = threading.Thread(target=follower.run)
        thread.start()
        eventually(lambda: lines, "the client has seen every object")
        follower.end()
        thread.join()
    assert lines[0].synced
    assert (lines[0].synced.lists, lines[0].synced.failed) == (3, 2)
