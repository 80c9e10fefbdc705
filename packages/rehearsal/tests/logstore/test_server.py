import time
from pathlib import Path

import httpx
import pytest

from gameday.errors import TooManyStreamsError
from gameday_rehearsal.logstore.logql import parse
from gameday_rehearsal.logstore.store import Entry, Store
from tests.rehearsal.logstore.conftest import Store as Process
from tests.support.streams import KERNEL_LOG

DMESG = '{k8s_daemonset_name="dmesg"}'


def lines(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    found = [(int(ns), line) for stream in answer.json()["data"]["result"] for ns, line in stream["values"]]
    return [line for _, line in sorted(found)]


def test_push_and_query(store: Process) -> None:
    now = time.time_ns()
    store.push([(now - 30, "a"), (now - 20, "b"), (now - 10, "c")])
    store.push([(now - 25, "late")], node="n2")
    assert lines(store.get("query_range", query=DMESG)) == ["a", "late", "b", "c"]
    assert lines(store.get("query_range", query=DMESG, limit=2)) == ["b", "c"]  # backward is the default
    assert lines(store.get("query_range", query=DMESG, limit=2, direction="forward")) == ["a", "late"]
    assert lines(store.get("query_range", query=DMESG, start=now - 25, end=now - 10)) == ["late", "b"]
    assert lines(store.get("query_range", query=DMESG + ' |= "a" != "late"', since="10s")) == ["a"]
    assert lines(store.get("query_range", query=DMESG + ' | k8s_node_name="n2"')) == ["late"]
    newest_first = store.get("query_range", query='{k8s_node_name="n1"}').json()["data"]["result"][0]["values"]
    assert [line for _, line in newest_first] == ["c", "b", "a"]


def test_duplicates_are_kept_once(store: Process) -> None:
    now = time.time_ns()
    store.push([(now, "same"), (now, "other")])
    store.push([(now, "same")])
    assert lines(store.get("query_range", query=DMESG)) == ["other", "same"]


def test_structured_metadata_is_no_index_label(store: Process) -> None:
    store.push([(time.time_ns(), "a")], metadata={"k8s_node_name": "n1"})
    assert lines(store.get("query_range", query='{k8s_node_name="n1"}')) == []
    answer = store.get("query_range", query=DMESG + ' | k8s_node_name="n1"')
    assert answer.json()["data"]["result"][0]["stream"] == {**KERNEL_LOG, "k8s_node_name": "n1"}
    assert store.get("labels").json()["data"] == sorted(KERNEL_LOG)


def test_labels_and_series_and_a_quiet_end_on_sigterm(store: Process) -> None:
    store.push([(time.time_ns(), "a")])
    assert store.get("label/k8s_node_name/values").json()["data"] == ["n1"]
    series = store.get("series", **{"match[]": DMESG}).json()["data"]
    assert series == [{**KERNEL_LOG, "k8s_node_name": "n1"}]
    assert store.http.get("/ready").text == "ready\n"
    assert store.stop() == 0


@pytest.mark.parametrize(
    ("parameters", "said"),
    [({"query": "rate({a=\"b\"}[5m])"}, "does not have metric queries"),
     ({"query": "{"}, "parse error at line 1, col 2"),
     ({}, "parse error"), ({"query": DMESG, "limit": "5001"}, "max entries limit"),
     ({"query": DMESG, "limit": "x"}, "limit must be"),
     ({"query": DMESG, "start": "soon"}, "valid timestamp"), ({"query": DMESG, "direction": "up"}, "direction"),
     ({"query": DMESG, "start": "20", "end": "10"}, "end timestamp")],
)  # fmt: skip
@pytest.mark.slow
def test_bad_queries_get_lokis_answer(empty_store: Process, parameters: dict[str, str], said: str) -> None:
    answer = empty_store.get("query_range", **parameters)
    assert answer.status_code == 400
    assert said in answer.text


@pytest.mark.parametrize(
    "body",
    [
        "nonsense",
        "{}",
        '{"streams": 5}',
        "[" * 50_000,
        '{"streams": [{"stream": {}, "values": []}]}',
        '{"streams": [{"stream": {"a b": "c"}, "values": []}]}',
        '{"streams": [{"stream": {"a": "b"}, "values": [["now", "x"]]}]}',
        '{"streams": [{"stream": {"a": "b"}, "values": [[1, "x"]]}]}',
        '{"streams": [{"stream": {"a": "b"}, "values": [["1"]]}]}',
    ],
)
@pytest.mark.slow
def test_bad_pushes_are_refused(empty_store: Process, body: str) -> None:
    json_type = {"Content-Type": "application/json"}
    answer = empty_store.http.post(f"{empty_store.url}/loki/api/v1/push", content=body, headers=json_type)
    assert answer.status_code == 400, answer.text
    assert empty_store.get("labels").json()["data"] == []


def test_protobuf_is_refused_with_advice(empty_store: Process) -> None:
    answer = empty_store.http.post(
        f"{empty_store.url}/loki/api/v1/push", content=b"\x00", headers={"Content-Type": "application/x-protobuf"}
    )
    assert (answer.status_code, "push JSON" in answer.text) == (415, True)


@pytest.mark.parametrize("path", ["/otlp/v1/logs", "/loki/api/v1/index/stats", "/loki/api/v1/status/buildinfo"])
@pytest.mark.slow
def test_endpoints_that_only_a_real_loki_has_are_not_implemented(empty_store: Process, path: str) -> None:
    answer = empty_store.http.post(empty_store.url + path, content=b"\x00")
    assert (answer.status_code, "a real Loki does" in answer.text) == (501, True)
    assert empty_store.http.get(f"{empty_store.url}/elsewhere").status_code == 404


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_to_a_kill(store: Process) -> None:
    store.push([(time.time_ns(), "a"), (time.time_ns(), "naïve \u2028 line")])
    store.stop(kill=True)
    with (store.folder / "current.jsonl").open("a") as file:
        file.write('{"labels": {"torn')
    store.start()
    store.push([(time.time_ns(), "after")])
    store.stop(kill=True)
    store.start()
    assert lines(store.get("query_range", query=DMESG)) == ["a", "naïve \u2028 line", "after"]


def test_memory_and_disk_are_bounded(tmp_path: Path) -> None:
    kept = Store(tmp_path, most_bytes=20_000)
    for number in range(500):
        kept.push([({"node": f"n{number % 3}"}, [Entry(number, "x" * 100)])])
    found = kept.query(parse('{node=~".+"}'), 0, 1000, 1000, forward=True)
    kept.close()
    assert 30 < len(found) < 70
    assert [entry.ns for entry in found] == list(range(500 - len(found), 500))
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 60_000
    again = Store(tmp_path, most_bytes=20_000)
    assert again.query(parse('{node=~".+"}'), 0, 1000, 1000, forward=True)[-1].ns == 499
    again.close()


def test_streams_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gameday_rehearsal.logstore.store.MOST_STREAMS", 1)
    kept = Store(None, most_bytes=1000)
    kept.push([({"a": "1"}, [])])
    with pytest.raises(TooManyStreamsError):
        kept.push([({"a": "2"}, [])])
