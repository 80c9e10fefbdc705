"""The adapter against the store: pages that lose nothing, and a tail that survives restarts."""

import json
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Self

import pytest

from gameday.cluster import loki
from gameday.cluster.loki import Followed, LogFollower, LogLine, LogStore, Loki, nanoseconds
from gameday.cluster.profile import ClusterProfile, Endpoint
from gameday.errors import AdapterError
from tests.rehearsal.logstore.conftest import Store
from tests.support.tailless import tailless

DMESG = '{k8s_daemonset_name="dmesg"}'


class Following:
    """A follower in a thread, and what it delivered."""

    def __init__(self, store: LogStore, since_ns: int, **options: float) -> None:
        self.lines: queue.Queue[LogLine] = queue.Queue()
        self.connected = threading.Event()
        self.lost = threading.Event()
        self.tailed = threading.Event()
        self.follower = LogFollower(store, DMESG, since_ns, on_connected=self._state, **options)
        self.thread = threading.Thread(target=self._run)

    def _state(self, connected: Followed | None) -> None:
        if connected is Followed.TAIL:
            self.tailed.set()
        (self.connected if connected else self.lost).set()
        (self.lost if connected else self.connected).clear()

    def _run(self) -> None:
        for line in self.follower.lines():
            self.lines.put(line)

    def take(self, count: int) -> list[str]:
        return [self.lines.get(timeout=60).text for _ in range(count)]


@contextmanager
def following(store: Store, since_ns: int, **options: float) -> Iterator[Following]:
    client = store.client()
    following = Following(client, since_ns, **options)
    following.thread.start()
    try:
        yield following
    finally:
        following.follower.stop()
        following.thread.join(10)
        client.close()
        assert not following.thread.is_alive()


@pytest.mark.slow
def test_pages_never_lose_equal_times_at_their_borders(store: Store) -> None:
    base = time.time_ns() - 10**9
    stamps = [base + offset for offset in (0, 1, 1, 1, 1, 2, 3, 3, 3, 3, 3, 3, 4)]
    for node in ("n1", "n2"):
        store.push([(ns, f"{node} {index}") for index, ns in enumerate(stamps)], node=node)
    client = store.client()
    for page in (1, 2, 3, 5, 7, 26, 1000):
        found = list(client.query_range(DMESG, base, base + 100, page=page))
        assert len(found) == len({line.text for line in found}) == 26, page
        assert [line.ns for line in found] == sorted(line.ns for line in found)
    assert client.http.counter.cost().by_call["GET query_range"] > 7
    client.close()


@pytest.mark.slow
def test_lines_of_one_node(store: Store) -> None:
    now = datetime.now(UTC)
    store.push([(nanoseconds(now), 'a "quoted" line'), (nanoseconds(now), "other")])
    store.push([(nanoseconds(now), 'a "quoted" line')], node="n2")
    server = Endpoint(url=store.url)
    for kind in ("index", "structured_metadata"):
        loki = Loki(ClusterProfile(prometheus=server, alertmanager=server, loki=server, loki_node_label_kind=kind))
        found = loki.node_lines("n1", containing='"quoted"', start=now, end=now + timedelta(seconds=1))
        assert [(line.text, line.at, line.label("k8s_node_name")) for line in found] == [('a "quoted" line', now, "n1")]
        assert len(loki.node_lines("n1", containing="", start=now, end=now + timedelta(seconds=1))) == 2
        loki.close()


@pytest.mark.slow
def test_a_store_that_is_down_is_named(store: Store) -> None:
    client = store.client()
    store.stop()
    with pytest.raises(AdapterError, match=f"{store.url}/loki/api/v1/query_range: connection refused"):
        list(client.query_range(DMESG, 0, 1))
    with pytest.raises(AdapterError, match=f"{store.url}/loki/api/v1/tail: connection refused"):
        client.open_tail(DMESG, 0)
    client.close()


@pytest.mark.slow
def test_a_query_that_does_not_parse_is_not_tried_for_ever(store: Store) -> None:
    client = store.client()
    with pytest.raises(AdapterError, match="parse error") as caught:
        list(LogFollower(client, "{", 0).lines())
    assert caught.value.status == 400
    client.close()


def test_old_and_new_lines_come_once(store: Store) -> None:
    since = time.time_ns()
    store.push([(since - 5, "before"), (since + 1, "old 1"), (since + 1, "old 2")])
    with following(store, since) as seen:
        assert sorted(seen.take(2)) == ["old 1", "old 2"]
        assert seen.connected.wait(60)
        store.push([(time.time_ns(), "new")])
        store.push([(since + 2, "late")], node="n2")
        assert seen.take(2) == ["new", "late"]
    assert seen.lines.empty()


@pytest.mark.parametrize("status", [502, 404, 403, 400, 200, 302, None])
def test_a_store_without_a_tail_is_read_by_its_ranges_until_it_has_one(
    store: Store, status: int | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loki, "RANGE_EVERY_S", 0.05)
    with tailless(store.url, status) as proxy:
        client = LogStore(Endpoint(url=proxy.url))
        server = Endpoint(url=proxy.url)
        kernel_log = Loki(ClusterProfile(prometheus=server, alertmanager=server, loki=server))
        with pytest.raises(AdapterError):
            kernel_log.try_tail()
        kernel_log.close()
        seen = Following(client, time.time_ns())
        seen.thread.start()
        for text in ("first", "second", "third"):
            store.push([(time.time_ns(), text)])
            assert seen.take(1) == [text]
        assert seen.connected.is_set() and not seen.tailed.is_set()
        told = [record.message for record in caplog.records if "query_range is read every" in record.message]
        assert len(told) == 1
        direct = store.client()
        monkeypatch.setattr(client, "open_tail", direct.open_tail)  # the proxy serves the tail now
        assert seen.tailed.wait(60)
        store.push([(time.time_ns(), "by the tail")])
        assert seen.take(1) == ["by the tail"]
        seen.follower.stop()
        seen.thread.join(10)
        client.close()
        direct.close()


def test_the_lines_of_a_node_are_handed_over_as_they_come(store: Store) -> None:
    server = Endpoint(url=store.url)
    loki = Loki(ClusterProfile(prometheus=server, alertmanager=server, loki=server))
    came: queue.Queue[LogLine] = queue.Queue()
    since = datetime.now(UTC)
    tail = loki.follow_node("n1", since, came.put, lambda error: pytest.fail(str(error)))
    store.push([(nanoseconds(since), "another's")], node="n2")
    store.push([(nanoseconds(since), "ours")])
    assert came.get(timeout=60).text == "ours"
    tail.stop()
    loki.close()
    assert came.empty()


@pytest.mark.slow
def test_nothing_is_lost_or_repeated_over_restarts(store: Store) -> None:
    since = time.time_ns()
    with following(store, since) as seen:
        wanted = []
        for round_ in range(3):
            assert seen.connected.wait(10)
            wanted.append(f"live {round_}")
            store.push([(time.time_ns(), wanted[-1])])
            assert seen.take(1) == wanted[-1:]
            stamped_in_outage = time.time_ns()
            store.stop(kill=round_ % 2 == 0)
            assert seen.lost.wait(10)
            store.start()
            # A shipper that catches up, after another's newer line: its time lies before what was seen.
            store.push([(time.time_ns(), f"newer {round_}")], node="n2")
            store.push([(stamped_in_outage, f"caught up {round_}")])
            assert sorted(seen.take(2)) == [f"caught up {round_}", f"newer {round_}"]
    assert seen.lines.empty()


@pytest.mark.slow
def test_a_tail_that_falls_silent_is_rechecked(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogStore, "read_frame", lambda *_: ([], False))  # a tail that loses every line
    with following(store, time.time_ns(), recheck_s=0.2) as seen:
        assert seen.connected.wait(60)
        store.push([(time.time_ns(), "only in the range")])
        assert seen.take(1) == ["only in the range"]


class Tail:
    """A tail whose frames have come already; after them it is closed."""

    def __init__(self, *frames: dict[str, Any]) -> None:
        self.frames = list(frames)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def recv(self, timeout: float | None = None) -> str:
        if self.frames:
            return json.dumps(self.frames.pop(0))
        raise TimeoutError if timeout == 0 else OSError("closed")


def test_what_the_tail_brings_does_not_wait_until_a_flood_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    base = time.time_ns()
    flood = [LogLine(base + number, (), "loud") for number in range(5000)]
    stream = {"stream": {"node": "n2"}, "values": [[str(base + 9000), "quiet"]]}
    tail = Tail({"dropped_entries": [{"timestamp": "1"}]}, {"streams": [stream], "dropped_entries": [{}]})
    ranges = [[], flood, [*flood, LogLine(base + 5000, (), "dropped meanwhile")]]
    client = LogStore(Endpoint(url="http://127.0.0.1:9"))
    monkeypatch.setattr(client, "open_tail", lambda *_: tail)
    monkeypatch.setattr(client, "query_range", lambda *_, **__: iter(ranges.pop(0)))
    follower = LogFollower(client, DMESG, 0)
    seen = [line.text for line in islice(follower.lines(), 5002)]
    client.close()
    assert seen.index("quiet") == 1000
    assert seen[-1] == "dropped meanwhile"


class DoesNotWait(threading.Event):
    """An event whose waits return at once."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


def test_a_store_that_is_away_for_hours_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    client, asked = LogStore(Endpoint(url="http://127.0.0.1:9")), []
    follower = LogFollower(client, DMESG, 0)
    follower._stopping = DoesNotWait()

    def away(*_: object) -> None:
        asked.append(1)
        if len(asked) == 2000:  # at 5 s each, more than two hours
            follower.stop()
        raise AdapterError("the log store", "away")

    def no_lines(*_: object, **__: object) -> Iterator[LogLine]:
        raise AdapterError("the log store", "away")

    monkeypatch.setattr(client, "open_tail", away)
    monkeypatch.setattr(client, "query_range", no_lines)
    assert list(follower.lines()) == []
    assert len(asked) == 2000
    client.close()
