"""A log store's answer with a stream or an entry that is none: it is skipped and counted, and the others are read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gameday.cluster.loki import LogStore
from gameday.cluster.profile import Endpoint
from gameday.errors import AdapterError
from tests.cluster.servers.conftest import Answer, Stub

GOOD = {"stream": {"k8s_node_name": "n1"}, "values": [["5", "first"], ["7", "last", {"more": "facts"}]]}
BAD: list[tuple[Any, int]] = [
    ("garbage", 1),
    (None, 1),
    ({}, 1),
    ({"stream": {"k8s_node_name": 7}, "values": [["6", "x"]]}, 1),
    ({"stream": None, "values": [["6", "x"]]}, 1),
    ({"stream": {}, "values": "x"}, 1),
    ({"stream": {}, "values": [None, [], ["6"], [6, "x"], ["6", None], ["six", "x"], ["-6", "x"], ["9" * 99, "x"]]}, 8),
]


@pytest.mark.parametrize(("bad", "count"), BAD)
def test_a_bad_stream_hides_no_other(stub: Stub, bad: Any, count: int) -> None:
    streams = [bad, GOOD, bad]
    stub.answers = [Answer(body=json.dumps({"data": {"result": streams}}).encode())]
    store, unreadable = LogStore(Endpoint(url=stub.url)), list[int]()
    found = list(store.query_range("{}", 0, 10, on_unreadable=unreadable.append))
    tailed, dropped = store.read_frame(json.dumps({"streams": streams}), unreadable.append)
    store.close()
    assert [line.text for line in found] == ["first", "last"] == [line.text for line in tailed]
    assert unreadable == [2 * count, 2 * count]
    assert not dropped


def test_a_page_of_bad_entries_is_not_the_last_one(stub: Stub) -> None:
    bad = {"stream": {}, "values": [[None, "x"]] * 3}
    pages = [[GOOD, bad], [GOOD | {"values": [["7", "last"], ["9", "new"]]}]]
    stub.answers = [Answer(body=json.dumps({"data": {"result": page}}).encode()) for page in pages]
    store = LogStore(Endpoint(url=stub.url))
    assert [line.ns for line in store.query_range("{}", 0, 10, page=5)] == [5, 7, 9]
    store.close()
    assert len(stub.requests) == 2


@pytest.mark.parametrize("message", ["garbage", b"\xff", "[1]", '{"streams": "x"}', "[" * 100_000])
def test_a_frame_that_is_none_is_an_error_of_the_store(message: str | bytes) -> None:
    store = LogStore(Endpoint(url="http://127.0.0.1:9"))
    with pytest.raises(AdapterError, match="a frame is not Loki's"):
        store.read_frame(message, lambda count: None)
    store.close()
