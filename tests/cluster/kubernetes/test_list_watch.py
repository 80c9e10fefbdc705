"""The list-watch protocol against scripted answers: resumption, falling back, pauses, and prompt ends."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import ProtocolError

from gameday.cluster import watch
from gameday.cluster.back_off import pause_s
from gameday.cluster.watch import Follower
from gameday.errors import AdapterError, WatchRefusedError

PATIENCE_S = 20.0

Json = dict[str, Any]
Answer = Callable[["Server"], "Response"]


def item(name: str, version: int) -> Json:
    return {"metadata": {"name": name, "namespace": "n", "resourceVersion": str(version)}}


def event(kind: str, name: str, version: int) -> bytes:
    return json.dumps({"type": kind, "object": item(name, version)}).encode() + b"\n"


def bookmark(version: int, *, ends_state: bool = False) -> bytes:
    annotations = {"k8s.io/initial-events-end": "true"} if ends_state else {}
    metadata = {"resourceVersion": str(version), "annotations": annotations}
    return json.dumps({"type": "BOOKMARK", "object": {"metadata": metadata}}).encode() + b"\n"


def expired() -> bytes:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


class Response:
    """A response that the client has not read yet; `stays` keeps it open after its last chunk, until it is closed."""

    def __init__(self, *chunks: bytes, body: Json | None = None, stays: bool = False, fails: bool = False) -> None:
        self.data = json.dumps(body).encode()
        self.connection = self
        self.sock = self
        self._chunks = chunks
        self._stays = stays
        self._fails = fails
        self._ended = threading.Event()

    def stream(self) -> Iterator[bytes]:
        yield from self._chunks
        if self._fails:
            raise ProtocolError("connection broken")
        if self._stays:
            assert self._ended.wait(PATIENCE_S)

    def shutdown(self, _how: int) -> None:
        self._ended.set()

    def close(self) -> None:
        self._ended.set()


class Server:
    """A list call that answers by its script, and stays silent after the last answer; `asked` has every question."""

    __name__ = "list_namespaced_pod"

    def __init__(self, *script: Response | ApiException) -> None:
        self._script = list(script)
        self.asked: list[Json] = []

    def __call__(self, **options: Any) -> Response:
        ignored = ("allow_watch_bookmarks", "timeout_seconds", "_request_timeout", "_preload_content")
        assert options["_preload_content"] is False
        self.asked.append({name: value for name, value in options.items() if name not in ignored})
        answer = self._script.pop(0) if self._script else Response(stays=True)
        if isinstance(answer, ApiException):
            raise answer
        return answer


STREAM = {"watch": True, "send_initial_events": True, "resource_version_match": "NotOlderThan"}


def resumed(version: int) -> Json:
    return {"watch": True, "resource_version": str(version)}


def a_list(version: int, *names: str, more: str = "") -> Response:
    metadata = {"resourceVersion": str(version), "continue": more}
    return Response(body={"metadata": metadata, "items": [item(name, version) for name in names]})


def a_state(version: int, *names: str) -> tuple[bytes, ...]:
    return (*(event("ADDED", name, version) for name in names), bookmark(version, ends_state=True))


@pytest.fixture(autouse=True)
def failures(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The failures in a row before every pause; nobody has to wait for the pauses."""
    counted: list[int] = []

    def count(failed: int, _first_s: float, _longest_s: float) -> float:
        counted.append(failed)
        return 0.0

    monkeypatch.setattr(watch, "pause_s", count)
    return counted


class Seen:
    """A follower of a scripted server, the notices it gave, and a wait for its questions."""

    def __init__(self, *script: Response | ApiException, **selection: Any) -> None:
        self.server = Server(*script)
        self.notices: list[tuple[str, str]] = []
        self.follower = Follower(self.server, self._note, dict, **selection)

    def _note(self, kind: str, found: Json) -> None:
        self.notices.append((kind, found["metadata"]["name"]))

    def names(self) -> set[str]:
        return {found["metadata"]["name"] for found in self.follower.objects()}

    def await_questions(self, number: int) -> list[Json]:
        """The questions, once there are so many."""
        deadline = time.monotonic() + PATIENCE_S
        while len(self.server.asked) < number:
            assert time.monotonic() < deadline, self.server.asked
            time.sleep(0.005)
        return self.server.asked


def test_a_streamed_state_comes_whole_and_its_changes_follow() -> None:
    chunks = b"".join((*a_state(5, "a", "b"), event("MODIFIED", "a", 6), event("DELETED", "b", 7)))
    cut = [chunks[at : at + 37] for at in range(0, len(chunks), 37)]
    seen = Seen(Response(*cut, stays=True))
    with seen.follower as follower:
        with follower.changed:
            assert follower.changed.wait_for(lambda: len(seen.notices) == 4, PATIENCE_S)
        assert follower.wait_synced(0)
        assert follower.named("a") == item("a", 6)
        assert follower.named("b") is None
        assert not follower.trouble()
    assert seen.notices == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
    assert seen.server.asked == [STREAM]


def test_an_object_deleted_while_the_state_streams_is_not_part_of_it() -> None:
    chunks = (event("ADDED", "a", 1), event("ADDED", "b", 1), event("DELETED", "a", 2), bookmark(2, ends_state=True))
    with (seen := Seen(Response(*chunks, stays=True))).follower as follower:
        follower.require_synced(PATIENCE_S)
        assert seen.names() == {"b"}
    assert seen.notices == [("ADDED", "b")]


def test_a_watch_goes_on_from_its_last_event_or_bookmark() -> None:
    seen = Seen(
        Response(*a_state(5, "a"), event("ADDED", "b", 8)),
        Response(bookmark(12)),
        Response(event("ADDED", "c", 13), fails=True),
        namespace="n",
        label_selector="x=y",
    )
    with seen.follower:
        asked = seen.await_questions(4)
        assert seen.names() == {"a", "b", "c"}
    selection = {"namespace": "n", "label_selector": "x=y"}
    assert asked == [selection | question for question in (STREAM, resumed(8), resumed(12), resumed(13))]
    assert seen.notices == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]


@pytest.mark.parametrize(
    "answer",
    [
        Response(expired()),
        ApiException(status=410),
        ApiException(status=504, reason="Too large resource version"),
        ApiException(status=500, reason="required revision is a future revision"),
    ],
)
def test_the_state_is_read_anew_where_its_version_is_of_no_use(answer: Response | ApiException) -> None:
    seen = Seen(Response(*a_state(5, "stays", "goes")), answer, Response(*a_state(90, "stays", "comes"), stays=True))
    with seen.follower as follower, follower.changed:
        assert follower.changed.wait_for(lambda: len(seen.notices) == 5, PATIENCE_S)
        assert seen.names() == {"stays", "comes"}
    assert seen.server.asked == [STREAM, resumed(5), STREAM]
    assert seen.notices[2:] == [("DELETED", "goes"), ("MODIFIED", "stays"), ("ADDED", "comes")]


@pytest.mark.parametrize("status", [400, 422])
def test_a_server_that_does_not_stream_is_listed_in_pages_without_a_pause(status: int, failures: list[int]) -> None:
    refusal = ApiException(status=status, reason="sendInitialEvents is forbidden")
    watched = Response(event("ADDED", "c", 8), expired())
    seen = Seen(refusal, a_list(7, "a", more="token"), a_list(7, "b"), watched, a_list(9, "a", "b", "c"))
    with seen.follower as follower:
        follower.require_synced(PATIENCE_S)
        asked, paused = seen.await_questions(6), list(failures)
    lists = [{"limit": 500}, {"limit": 500, "_continue": "token"}]
    assert asked == [STREAM, *lists, resumed(7), lists[0], resumed(9)], "what does not stream is not asked to again"
    assert [name for _, name in seen.notices][:3] == ["a", "b", "c"]
    assert paused == [1], "no pause before the list, one after the watch that ended at once"


def test_half_a_state_is_not_taken_for_the_whole() -> None:
    seen = Seen(Response(event("ADDED", "a", 1)), a_list(7, "a", "b"), Response(stays=True))
    with seen.follower as follower:
        follower.require_synced(PATIENCE_S)
        assert seen.names() == {"a", "b"}
    assert seen.server.asked == [STREAM, {"limit": 500}, resumed(7)]


def test_a_state_whose_connection_fails_half_way_is_streamed_again() -> None:
    seen = Seen(Response(event("ADDED", "a", 1), fails=True), Response(*a_state(5, "b"), stays=True))
    with seen.follower as follower:
        follower.require_synced(PATIENCE_S)
        assert seen.names() == {"b"}
    assert seen.notices == [("ADDED", "b")]
    assert seen.server.asked == [STREAM, STREAM]


def test_a_list_is_no_known_state_while_its_watch_is_refused() -> None:
    refused = ApiException(status=403, reason="Forbidden")
    with (seen := Seen(ApiException(status=422), a_list(7, "a"), refused)).follower as follower:
        with pytest.raises(WatchRefusedError, match="watch pods: 403 Forbidden"):
            follower.require_synced(PATIENCE_S)
        assert "403" in follower.trouble()
    assert seen.names() == set()


def test_failures_in_a_row_are_counted_until_a_watch_lasts(
    failures: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    away = [ApiException(status=503) for _ in range(3)]
    seen = Seen(*away, Response(*a_state(5)), *away, Response(stays=True))
    monkeypatch.setattr(watch, "_LASTING_S", 0.0)
    with seen.follower:
        seen.await_questions(8)
    assert failures == [1, 2, 3, 1, 2, 3]


def test_a_watch_that_ends_as_soon_as_it_is_open_is_a_failure(failures: list[int]) -> None:
    with (seen := Seen(Response(*a_state(5)), Response(), Response())).follower:
        seen.await_questions(4)
        assert failures == [1, 2, 3]


def test_pauses_double_up_to_their_bound_and_are_jittered() -> None:
    for failed, longest in ((1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (5, 5.0), (5000, 5.0)):
        pauses = [pause_s(failed, 0.5, 5.0) for _ in range(100)]
        assert longest / 2 <= min(pauses) < max(pauses) <= longest


def test_a_retry_after_is_waited_for() -> None:
    throttled = ApiException(status=429)
    throttled.headers = {"Retry-After": "1"}
    began = time.monotonic()
    with (seen := Seen(throttled)).follower:
        seen.await_questions(2)
    assert time.monotonic() - began >= 1.0


@pytest.mark.timeout(30)
def test_a_long_retry_after_does_not_hold_up_the_end() -> None:
    throttled = ApiException(status=429)
    throttled.headers = {"Retry-After": "86400"}
    with (seen := Seen(throttled)).follower:
        seen.await_questions(1)
    assert len(seen.server.asked) == 1


@pytest.mark.timeout(30)
def test_a_call_that_hangs_does_not_hold_up_the_end_and_changes_nothing_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "_ENDS_WITHIN_S", 0.05)
    answers, asked = threading.Event(), threading.Event()
    notices: list[str] = []

    def hanging(**_: Any) -> Response:
        asked.set()
        assert answers.wait(PATIENCE_S)
        return Response(*a_state(5, "a"))

    follower = Follower(hanging, lambda kind, _: notices.append(kind), dict)
    with follower:
        assert asked.wait(PATIENCE_S)
    answers.set()
    follower._thread.join(PATIENCE_S)
    assert not follower._thread.is_alive()
    assert (notices, follower.objects()) == ([], [])


def test_a_silent_server_is_named_when_the_time_is_up() -> None:
    with Seen(Response(stays=True), namespace="n").follower as follower:
        with pytest.raises(AdapterError, match="watch pods in namespace n: no answer within 0 s"):
            follower.require_synced(0)
        assert "watch pods in namespace n: down for" in follower.trouble()
        assert follower.trouble(for_s=3600) == ""


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (ApiException(status=503, reason="away"), "503 away"),
        (Response(b'{"type": "ADDED", "object": {"kind": "Pod"}}\n', fails=True), "KeyError: 'metadata'"),
        (Response(fails=True), "connection broken"),
    ],
)
def test_the_reason_why_a_watch_is_down_is_named(answer: Response | ApiException, why: str) -> None:
    with (seen := Seen(*[answer] * 3)).follower as follower:
        seen.await_questions(2)
        assert follower.trouble().startswith("watch pods: down for 0 s: ")
        assert why in follower.trouble()
        with pytest.raises(AdapterError, match=f"no answer within 0 s: .*{why}"):
            follower.require_synced(0)


def test_a_watch_that_still_asks_when_the_process_ends_does_not_abort_it() -> None:
    script = """
import sys, threading, time
from kubernetes import client
from gameday.cluster.watch import Follower

asking = threading.Event()

class Rest:
    def request(self, *arguments, **options):
        asking.set()
        time.sleep(0.3)
        raise OSError

class SlowToGo:
    def __del__(self, sleep=time.sleep):
        sleep(1)

sys.its_end_takes_a_second = SlowToGo()
api = client.ApiClient(client.Configuration())
api.rest_client = Rest()
Follower(client.CoreV1Api(api).list_node).__enter__()
asking.wait()
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
