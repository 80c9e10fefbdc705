"""Answers of a running cluster to another user of the machine, and to a web page in this user's browser.

The machine's loopback lets everybody in, so a request here without a password is every other user's.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from gameday.cluster.alertmanager import Alertmanager
from gameday.cluster.profile import load_profile
from gameday_rehearsal.blueprint import Blueprint, Detector, Size
from gameday_rehearsal.cluster import RehearsalCluster
from tests.support.prefect_api import prefect_api

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NOBODY = 65534
_STEP = {"prefect.deployments.steps.run_shell_script": {"script": "id > proof"}}
FOREIGN = {
    "work_pools/filter": {},
    "flows/": {"name": "foreign"},
    "deployments/": {
        "name": "foreign",
        "flow_id": "00000000-0000-4000-8000-000000000000",
        "work_pool_name": "gameday",
        "entrypoint": "x.py:x",
        "pull_steps": [_STEP],
    },
    "deployments/00000000-0000-4000-8000-000000000000/create_flow_run": {},
    "block_documents/filter": {"include_secrets": True},
    "flow_runs/00000000-0000-4000-8000-000000000000/resume": {"run_input": {"decision": "approve"}},
}
"""The steps by which another user had his own command run by the worker of `gameday up`, and two others."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RehearsalCluster]:
    """A cluster of a user whose umask takes nothing away, in a folder that everybody may enter."""
    folder = tmp_path_factory.mktemp("others") / "cluster"
    before = os.umask(0)
    try:
        with RehearsalCluster(Blueprint(folder, Size(nodes=2, gpus=2), Detector.DEFAULT, repair=True)) as started:
            yield started
    finally:
        os.umask(before)


@pytest.fixture(scope="module")
def browser(cluster: RehearsalCluster) -> Iterator[httpx.Client]:
    """A client that knows no password."""
    with httpx.Client(base_url=cluster.urls["prefect"], trust_env=False) as client:
        yield client


@pytest.mark.parametrize("path", FOREIGN)
def test_prefect_does_nothing_without_the_password(browser: httpx.Client, path: str) -> None:
    for password in ("", "gameday:", "gameday:wrong"):
        user, _, secret = password.partition(":")
        assert browser.post(f"/api/{path}", json=FOREIGN[path], auth=(user, secret)).status_code == 401
    assert browser.post(f"/api/{path}", json=FOREIGN[path]).status_code == 401


def test_prefect_lets_its_own_clients_in(cluster: RehearsalCluster) -> None:
    with prefect_api(cluster.prefect_client) as api:
        assert api.post("/flows/filter", json={}).status_code == 200


@pytest.mark.parametrize("stream", ["events/in", "events/out", "logs/out", "work_pools/gameday/workers/connect"])
def test_a_stream_of_prefects_ends_without_the_password(cluster: RehearsalCluster, stream: str) -> None:
    with _stream(cluster, stream) as socket:
        socket.send(json.dumps({"type": "auth", "token": "gameday:wrong"}))
        with pytest.raises(ConnectionClosed):
            socket.recv()


def _stream(cluster: RehearsalCluster, stream: str, **headers: str) -> ClientConnection:
    url = f"{cluster.urls['prefect'].replace('http', 'ws')}/api/{stream}"
    return connect(url, subprotocols=[Subprotocol("prefect")], additional_headers=headers, proxy=None)


def test_a_foreign_page_may_not_read_an_answer(cluster: RehearsalCluster, browser: httpx.Client) -> None:
    foreign, own = {"Origin": "http://evil.example"}, {"Origin": cluster.urls["prefect"]}
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    preflight = browser.options("/api/flows/", headers={**foreign, **asked})
    assert preflight.status_code == 400
    for answer in (preflight, browser.get("/ui-settings", headers=foreign)):
        assert "access-control-allow-origin" not in answer.headers
    assert browser.options("/api/flows/", headers={**own, **asked}).status_code == 200
    assert browser.get("/ui-settings", headers=own).headers["access-control-allow-origin"] == own["Origin"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "169.254.169.254", ""])
def test_a_page_whose_name_leads_here_gets_nothing(cluster: RehearsalCluster, browser: httpx.Client, host: str) -> None:
    for path in ("/", "/api/health", "/ui-settings"):
        assert browser.get(path, headers={"Host": host}).status_code == 400
    with pytest.raises(InvalidStatus):
        _stream(cluster, "events/out", Host=host)


def test_a_tunnel_may_end_at_another_port(browser: httpx.Client) -> None:
    assert browser.get("/api/health", headers={"Host": "localhost:8080"}).status_code == 200


def test_nobody_else_may_open_a_file_whatever_the_umask(cluster: RehearsalCluster) -> None:
    found = {cluster.folder, *cluster.folder.rglob("*")}
    assert {"prefect.db", "lock", "state.json", "pid", "prefect-password"} <= {path.name for path in found}
    open_to_others = {str(path) for path in found if not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) & 0o77}
    assert open_to_others == set()


def test_the_password_is_in_its_file_and_nowhere_else_that_others_or_a_log_show(cluster: RehearsalCluster) -> None:
    secret = cluster.prefect_password.partition(":")[2].encode()
    files = [path for path in cluster.folder.rglob("*") if path.is_file()]
    assert [path.name for path in files if secret in path.read_bytes()] == ["prefect-password"]
    for name in ("prefect", "repair", "nodes"):
        process = cluster.child(name).process
        assert process is not None
        assert secret not in Path(f"/proc/{process.pid}/cmdline").read_bytes()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can play another user")
def test_another_user_can_read_neither_file_nor_environment(cluster: RehearsalCluster) -> None:
    process = cluster.child("prefect").process
    assert process is not None
    for path in (cluster.prefect_password_file, cluster.folder / "prefect/prefect.db", f"/proc/{process.pid}/environ"):
        read = subprocess.run(
            ["cat", str(path)], check=False, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True
        )
        assert (read.returncode, read.stdout) == (1, b""), path


def test_only_the_nodes_push_lines_to_the_log_store(cluster: RehearsalCluster) -> None:
    forged: dict[str, Any] = {"stream": {"k8s_node_name": "gpu-node-1"}, "values": [["1", "NVRM: Xid"]]}
    push = f"{cluster.urls['loki']}/loki/api/v1/push"
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        answer = httpx.post(push, json={"streams": [forged]}, headers=headers, trust_env=False)
        assert answer.status_code == 401
    found = httpx.get(f"{cluster.urls['loki']}/loki/api/v1/series", params={"match[]": '{k8s_node_name=~".+"}'})
    assert all(one["k8s_namespace_name"] == "dmesg-logging" for one in found.json()["data"])


def test_only_agents_reach_the_virtual_hosts(cluster: RehearsalCluster) -> None:
    hosts: str = cluster.child("nodes").ready["hosts"]
    assert httpx.get(f"{hosts}/gpu-node-1/kernel-log", trust_env=False).status_code == 200
    server = hosts.rsplit("/", 2)[0]
    for path in ("hosts", "/hosts", "wrong/hosts", "%2e/hosts"):
        assert httpx.get(f"{server}/{path}/gpu-node-1/kernel-log", trust_env=False).status_code == 404


def test_the_api_server_answers_nobody_without_an_account(cluster: RehearsalCluster) -> None:
    server = cluster.urls["kubernetes"]
    for headers, status in (({}, 403), ({"Authorization": "Bearer wrong"}, 401)):
        answer = httpx.get(f"{server}/api/v1/nodes", headers=headers, verify=False, trust_env=False)
        assert answer.status_code == status


def test_prometheus_is_only_read(cluster: RehearsalCluster) -> None:
    url = cluster.urls["prometheus"]
    for method, path in (("POST", "/-/quit"), ("POST", "/-/reload"), ("POST", "/api/v1/admin/tsdb/delete_series")):
        assert httpx.request(method, f"{url}{path}", trust_env=False).status_code >= 400, path
    assert httpx.get(f"{url}/-/healthy", trust_env=False).status_code == 200


def test_nobody_else_raises_or_silences_an_alert(cluster: RehearsalCluster) -> None:
    forged, url = [{"labels": {"alertname": "Forged"}}], f"{cluster.urls['alertmanager']}/api/v2"
    for method, path in (("POST", "alerts"), ("GET", "alerts"), ("POST", "silences"), ("DELETE", "silence/x")):
        answer = httpx.request(method, f"{url}/{path}", json=forged, trust_env=False)
        assert answer.status_code == httpx.codes.UNAUTHORIZED, (method, path)
    with Alertmanager(load_profile(cluster.profile).alertmanager) as alertmanager:
        assert "Forged" not in [one.name for one in alertmanager.alerts()]
