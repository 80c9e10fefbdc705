"""An object is created once, also while the API server loses answers or its store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gameday.cluster.kubernetes import Kubernetes
from gameday.errors import KubernetesError
from tests.cluster.servers.conftest import Answer, Stub
from tests.support.world import plain_adapter

JSON = {"Content-Type": "application/json"}
MANIFEST = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gd-1-canary"}}
ETCD_GONE = "rpc error: code = Unavailable desc = error reading from server: connection reset by peer"


def pod(**metadata: str) -> dict[str, Any]:
    return {**MANIFEST, "metadata": {"name": "gd-1-canary", "uid": "u-1", **metadata}}


def created() -> Answer:
    return Answer(201, json.dumps(pod()).encode(), JSON)


def failed(status: int, message: str = "") -> Answer:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "message": message}
    return Answer(status, json.dumps(body).encode(), JSON)


def lost() -> Answer:
    return Answer(201, b"{", {**JSON, "Content-Length": "100"}, hangs_up=True)


def listed(*pods: dict[str, Any]) -> Answer:
    found = {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": pods}
    return Answer(200, json.dumps(found).encode(), JSON)


@pytest.fixture
def server() -> Iterator[Stub]:
    stub = Stub()
    yield stub
    stub.close()


@pytest.fixture
def kubernetes(server: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kubernetes]:
    monkeypatch.setattr("gameday.cluster.creation._FIRST_PAUSE_S", 0.001)
    with plain_adapter(tmp_path, server.url) as found:
        yield found


def verbs(server: Stub) -> list[str]:
    return [method for method, _, _ in server.requests]


@pytest.mark.parametrize(
    "failure",
    [lambda: failed(500, ETCD_GONE), lambda: failed(503), lambda: failed(429), lost],
    ids=["etcd gone", "unavailable", "throttled", "answer lost"],
)
def test_a_failed_creation_is_tried_again(server: Stub, kubernetes: Kubernetes, failure: Callable[[], Answer]) -> None:
    server.answers = [failure(), failure(), created()]
    assert kubernetes.create_pod(MANIFEST) == "u-1"
    assert verbs(server) == ["POST"] * 3


def test_what_a_lost_answer_created_is_found(server: Stub, kubernetes: Kubernetes) -> None:
    server.answers = [lost(), failed(409, "already exists"), listed(pod())]
    assert kubernetes.create_pod(MANIFEST) == "u-1"
    assert verbs(server) == ["POST", "POST", "GET"]


@pytest.mark.parametrize("found", [[], [pod(deletionTimestamp="2026-11-26T08:00:00Z")]], ids=["gone", "going"])
def test_a_pod_of_before_is_not_taken_for_ours(
    server: Stub, kubernetes: Kubernetes, found: list[dict[str, Any]]
) -> None:
    server.answers = [failed(500, ETCD_GONE), failed(409, "already exists"), listed(*found)]
    with pytest.raises(KubernetesError, match="create pod gd-1-canary: 409 it was there") as raised:
        kubernetes.create_pod(MANIFEST)
    assert raised.value.status == 409


def test_a_conflict_at_first_is_somebody_elses(server: Stub, kubernetes: Kubernetes) -> None:
    server.answers = [failed(409, "already exists")]
    with pytest.raises(KubernetesError, match="already exists"):
        kubernetes.create_pod(MANIFEST)
    assert verbs(server) == ["POST"]


def test_a_read_waits_for_the_servers_store_and_each_attempt_counts(
    server: Stub, kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gameday.cluster.kube_transport._STORE_FIRST_PAUSE_S", 0.001)
    node = Answer(200, json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1"}}).encode(), JSON)
    server.answers = [failed(500, ETCD_GONE), failed(500, "etcdserver: leader changed"), node]
    assert kubernetes.node("gpu-1").metadata.name == "gpu-1"
    assert kubernetes.counter.cost().requests == len(server.requests) == 3


@pytest.mark.parametrize("message", ["failed calling webhook", "etcdserver: mvcc: database space exceeded"])
def test_any_other_internal_error_is_told_at_once(server: Stub, kubernetes: Kubernetes, message: str) -> None:
    server.answers = [failed(500, message)]
    with pytest.raises(KubernetesError, match=message):
        kubernetes.node("gpu-1")
    with pytest.raises(KubernetesError, match=message):
        kubernetes.create_pod(MANIFEST)
    assert verbs(server) == ["GET", "POST"]


def test_a_lasting_failure_is_told_after_six_attempts(server: Stub, kubernetes: Kubernetes) -> None:
    server.answers = [failed(500, ETCD_GONE)]
    with pytest.raises(KubernetesError, match="code = Unavailable"):
        kubernetes.create_job({"metadata": {"name": "gd-1-job"}})
    assert verbs(server) == ["POST"] * 6
