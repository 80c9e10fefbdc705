"""Lists, pages, selectors, watches, versions, forms, and what a restart leaves of them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.informer import SharedInformer

from kubesim.apiserver.store import EVENT_WINDOW, Store
from kubesim.apiserver.watching import BOOKMARK_EVERY_S
from tests.kubesim.apiserver.conftest import pod
from tests.kubesim.processes import PATIENCE_S, ApiServer, eventually

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module", autouse=True)
def ten(http: httpx.Client) -> None:
    for number in range(10):
        labels = {"number": str(number), "half": "low" if number < 5 else "high"}
        made = http.post(CONFIGMAPS, json={"metadata": {"name": f"m-{number}", "labels": labels}})
        assert made.status_code == 201


def names(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [item["metadata"]["name"] for item in answer.json()["items"]]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("half=low,number!=0", "1234"),
        ("number in (1, 2,77)", "12"),
        ("half,half notin (low)", "56789"),
        ("half==high,number>7", "89"),
        ("!half", ""),
    ],
)
def test_label_selectors(http: httpx.Client, selector: str, expected: str) -> None:
    found = names(http.get(CONFIGMAPS, params={"labelSelector": selector}))
    assert [name for name in found if name.startswith("m-")] == [f"m-{digit}" for digit in expected]


def test_field_selectors(http: httpx.Client) -> None:
    assert names(http.get(CONFIGMAPS, params={"fieldSelector": "metadata.name=m-3"})) == ["m-3"]
    assert http.get(CONFIGMAPS, params={"fieldSelector": "data.x=1"}).status_code == 400
    assert http.get(CONFIGMAPS, params={"labelSelector": "a=b=c"}).status_code == 400
    pods = "/api/v1/namespaces/default/pods"
    http.post(pods, json=pod("here", nodeName="n1"))
    http.post(pods, json=pod("nowhere"))
    assert names(http.get("/api/v1/pods", params={"fieldSelector": "spec.nodeName=n1"})) == ["here"]
    unbound = {"fieldSelector": "spec.nodeName=,status.phase!=Failed"}
    assert names(http.get("/api/v1/pods", params=unbound)) == ["nowhere"]


def test_pages_show_one_moment(http: httpx.Client) -> None:
    first = http.get(CONFIGMAPS, params={"limit": 4, "labelSelector": "half"}).json()
    http.post(CONFIGMAPS, json={"metadata": {"name": "m-late", "labels": {"half": "late"}}})
    second = http.get(CONFIGMAPS, params={"limit": 100, "continue": first["metadata"]["continue"]}).json()
    assert len(first["items"]) == 4
    assert "m-late" not in [item["metadata"]["name"] for item in second["items"]]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    counted = http.get(CONFIGMAPS, params={"limit": 3}).json()["metadata"]
    assert counted["remainingItemCount"] == len(names(http.get(CONFIGMAPS))) - 3
    assert http.get(CONFIGMAPS, params={"continue": "nonsense"}).status_code == 400
    http.delete(f"{CONFIGMAPS}/m-late")


def test_versions_of_lists(http: httpx.Client) -> None:
    now = int(http.get(CONFIGMAPS).json()["metadata"]["resourceVersion"])
    assert http.get(CONFIGMAPS, params={"resourceVersion": "0"}).status_code == 200
    ahead = http.get(CONFIGMAPS, params={"resourceVersion": str(now + 1000)})
    assert (ahead.status_code, ahead.json()["reason"]) == (504, "Timeout")
    exact = http.get(CONFIGMAPS, params={"resourceVersion": "2", "resourceVersionMatch": "Exact"})
    assert "m-0" not in names(exact)
    assert http.get(CONFIGMAPS, params={"resourceVersionMatch": "Exact"}).status_code == 422


def test_metadata_only_and_tables(http: httpx.Client) -> None:
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
    partial = http.get(CONFIGMAPS, headers={"Accept": accept}).json()
    assert partial["kind"] == "PartialObjectMetadataList" and set(partial["items"][0]) >= {"metadata"}
    assert all("data" not in item for item in partial["items"])
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    table = http.get(CONFIGMAPS, headers={"Accept": accept}).json()
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


def test_discovery(http: httpx.Client) -> None:
    pods = next(item for item in http.get("/api/v1").json()["resources"] if item["name"] == "pods")
    assert pods["shortNames"] == ["po"] and pods["categories"] == ["all"] and "watch" in pods["verbs"]
    groups = {item["name"] for item in http.get("/apis").json()["groups"]}
    assert "batch" in groups and "storage.k8s.io" not in groups
    deployments = next(item for item in http.get("/apis/apps/v1").json()["resources"] if item["name"] == "deployments")
    assert deployments["kind"] == "Deployment" and deployments["verbs"] == []
    assert http.get("/version").json()["major"] == "1"
    assert http.get("/readyz").text == "ok"


def lines_of(http: httpx.Client, params: dict[str, Any]) -> Iterator[dict[str, Any]]:
    with http.stream("GET", CONFIGMAPS, params={"watch": "1", **params}) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            yield json.loads(line)


def test_watch_resumes_where_it_was(http: httpx.Client) -> None:
    version = http.get(CONFIGMAPS).json()["metadata"]["resourceVersion"]
    http.post(CONFIGMAPS, json={"metadata": {"name": "w"}})
    http.patch(
        f"{CONFIGMAPS}/w", content=b'{"data":{"a":"b"}}', headers={"Content-Type": "application/merge-patch+json"}
    )
    http.delete(f"{CONFIGMAPS}/w")
    events = list(lines_of(http, {"resourceVersion": version, "timeoutSeconds": 1}))
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions)) and versions[0] > int(version)


def test_watch_with_a_selector_turns_changes_into_arrivals_and_departures(http: httpx.Client) -> None:
    version = http.get(CONFIGMAPS).json()["metadata"]["resourceVersion"]
    merge = {"Content-Type": "application/merge-patch+json"}
    http.patch(f"{CONFIGMAPS}/m-9", content=b'{"metadata":{"labels":{"half":"low"}}}', headers=merge)
    http.patch(f"{CONFIGMAPS}/m-9", content=b'{"metadata":{"labels":{"half":"high"}}}', headers=merge)
    params = {"resourceVersion": version, "timeoutSeconds": 1, "labelSelector": "half=low"}
    assert [event["type"] for event in lines_of(http, params)] == ["ADDED", "DELETED"]


def test_initial_events_end_with_a_bookmark(http: httpx.Client) -> None:
    params = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true",
              "timeoutSeconds": 1}  # fmt: skip
    events = list(lines_of(http, params))
    assert {event["type"] for event in events[:-1]} == {"ADDED"} and events[-1]["type"] == "BOOKMARK"
    assert events[-1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


@pytest.mark.conformance
def test_bookmarks_carry_versions_of_other_kinds(http: httpx.Client) -> None:
    version = http.get(CONFIGMAPS).json()["metadata"]["resourceVersion"]
    http.post("/api/v1/namespaces/default/secrets", json={"metadata": {"generateName": "s-"}})
    params = {"resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": int(BOOKMARK_EVERY_S) + 5}
    first = next(lines_of(http, params))
    assert first["type"] == "BOOKMARK" and int(first["object"]["metadata"]["resourceVersion"]) > int(version)


def test_the_event_window_forgets_its_oldest(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.jsonl")
    for number in range(EVENT_WINDOW + 2):
        store.put("secrets", {"metadata": {"name": "s", "namespace": "default", "uid": "u", "n": number}})
    assert store["secrets"].window_starts_after == 3
    store.close()


@pytest.mark.conformance
def test_a_killed_server_loses_nothing_and_old_watches_get_410(tmp_path: Path) -> None:
    server = ApiServer(tmp_path)
    try:
        with server.http() as http:
            old = http.get(CONFIGMAPS).json()["metadata"]["resourceVersion"]
            http.post(CONFIGMAPS, json={"metadata": {"name": "first"}})
            http.post(CONFIGMAPS, json={"metadata": {"name": "second"}})
            http.delete(f"{CONFIGMAPS}/first")
            before = http.get(CONFIGMAPS).json()
        server.end(signal.SIGKILL)
        server.start()
        with server.http() as http:
            assert http.get(CONFIGMAPS).json() == before
            error = next(lines_of(http, {"resourceVersion": old}))
            assert (error["type"], error["object"]["code"], error["object"]["reason"]) == ("ERROR", 410, "Expired")
            made = http.post(CONFIGMAPS, json={"metadata": {"name": "third"}}).json()
            assert int(made["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])
            resumed = next(lines_of(http, {"resourceVersion": before["metadata"]["resourceVersion"]}))
            assert resumed["object"]["metadata"]["name"] == "third"
        api = client.CoreV1Api(server.api())
        with pytest.raises(ApiException) as gone:
            list(watch.Watch().stream(api.list_namespaced_config_map, "default", resource_version=old))
        assert gone.value.status == 410
    finally:
        assert server.end() == 0


def test_a_torn_last_line_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    store = Store(path)
    store.put("secrets", {"metadata": {"name": "whole", "namespace": "default", "uid": "u"}})
    store.close()
    with path.open("ab") as out:
        out.write(b'{"r":"secrets","v":9,"o":{"metad')
    again = Store(path)
    assert [stored.name for stored in again["secrets"].all()] == ["whole"] and again.rv == 2
    again.close()


@pytest.mark.conformance
def test_a_port_in_use_is_said_plainly(server: ApiServer, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "kubesim.apiserver", "--port", str(server.port), "--data-dir"]
    done = subprocess.run([*argv, str(tmp_path)], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1 and f"127.0.0.1:{server.port}" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.conformance
def test_an_informer_survives_a_restart(tmp_path: Path) -> None:
    server = ApiServer(tmp_path)
    informer = SharedInformer(client.CoreV1Api(server.api()).list_namespaced_config_map, namespace="default")
    seen: list[str] = []
    informer.add_event_handler("ADDED", lambda item: seen.append(item.metadata.name))
    try:
        with server.http() as http:
            informer.start()
            http.post(CONFIGMAPS, json={"metadata": {"name": "before"}})
            eventually(lambda: "before" in seen, "the first object")
            assert server.end() == 0
            server.start()
            http.post(CONFIGMAPS, json={"metadata": {"name": "after"}})
            eventually(lambda: "after" in seen, "the object made after the restart")
            assert seen.count("before") == 1
    finally:
        stopping = threading.Thread(target=informer.stop)
        stopping.start()
        server.end()
        stopping.join()
