"""Discovery, bookmarks and the window of events, and what a restart leaves of lists and watches."""

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
from tests.kubesim.processes import PATIENCE_S, ApiServer, eventually

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


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
