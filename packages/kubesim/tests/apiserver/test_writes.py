"""Writes as the recorded scripts do not ask for them: the official client, odd shapes, owners, protobuf, names."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from kubesim.apiserver import objects
from kubesim.apiserver.errors import StatusError
from kubesim.apiserver.resources import BY_PATH
from kubesim.apiserver.store import Store
from tests.kubesim.apiserver.conftest import node

MERGE = {"Content-Type": "application/merge-patch+json"}
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


def send(http: httpx.Client, path: str, body: Any, headers: dict[str, str]) -> httpx.Response:
    return http.patch(path, content=json.dumps(body), headers=headers)


def owners(obj: dict[str, Any], *fields: str) -> set[tuple[str, str]]:
    found = set()
    for entry in obj["metadata"]["managedFields"]:
        here = entry["fieldsV1"]
        for field in fields:
            here = here.get(field) if here is not None else None
        if here is not None:
            found.add((entry["manager"], entry["operation"]))
    return found


def test_official_client_creates_reads_replaces_and_deletes(core: client.CoreV1Api) -> None:
    meta = client.V1ObjectMeta(name="crud")
    made = core.create_namespaced_config_map("default", client.V1ConfigMap(metadata=meta, data={"a": "1"}))
    assert made.metadata.uid and made.metadata.creation_timestamp and int(made.metadata.resource_version) > 0
    made.data["a"] = "2"
    second = core.replace_namespaced_config_map("crud", "default", made)
    assert int(second.metadata.resource_version) > int(made.metadata.resource_version)
    with pytest.raises(ApiException) as conflict:
        core.replace_namespaced_config_map("crud", "default", made)
    status = json.loads(conflict.value.body)
    assert (conflict.value.status, status["reason"]) == (409, "Conflict")
    assert status["message"].startswith('Operation cannot be fulfilled on configmaps "crud": the object has been')
    same = core.replace_namespaced_config_map("crud", "default", second)
    assert same.metadata.resource_version == second.metadata.resource_version  # nothing changed, nothing written
    core.delete_namespaced_config_map("crud", "default")
    with pytest.raises(ApiException) as gone:
        core.read_namespaced_config_map("crud", "default")
    assert json.loads(gone.value.body)["details"] == {"name": "crud", "kind": "configmaps"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/nodes", {"metadata": {"name": "odd"}, "spec": []}),
        ("/api/v1/nodes", {"metadata": {"name": "odd"}, "spec": {"taints": ["x"]}}),
        ("/api/v1/nodes", {"metadata": {"name": "odd", "labels": "x"}}),
        ("/api/v1/nodes", {"metadata": []}),
        (PODS, {"metadata": {"name": "odd"}, "spec": {"containers": [{"name": "c", "image": 7}]}}),
        (PODS, {"metadata": {"name": 7}, "spec": {"containers": "none"}}),
        ("/apis/batch/v1/namespaces/default/jobs", {"metadata": {"name": "odd"}, "spec": {"template": "x"}}),
        (CONFIGMAPS, {"metadata": {"name": "odd"}, "data": [1]}),
    ],
)
def test_odd_shapes_are_refused_not_stored(http: httpx.Client, path: str, body: Any) -> None:
    assert http.post(path, json=body).status_code in (400, 422)


def test_managed_fields_name_the_owner_of_a_taint(http: httpx.Client) -> None:
    http.post("/api/v1/nodes?fieldManager=kubelet", json=node("owned"))
    taint = {"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule"}
    patched = send(http, "/api/v1/nodes/owned?fieldManager=health", {"spec": {"taints": [taint]}}, STRATEGIC).json()
    assert owners(patched, "f:spec", "f:taints") == {("health", "Update")}
    entry = next(item for item in patched["metadata"]["managedFields"] if item["manager"] == "health")
    assert entry["fieldsV1"] == {"f:spec": {"f:taints": {}}} and entry["time"].endswith("Z")
    labelled = send(http, "/api/v1/nodes/owned", {"metadata": {"labels": {"a": "b"}}}, MERGE).json()
    assert owners(labelled, "f:metadata", "f:labels", "f:a") == {("test-client", "Update")}
    heartbeat = {"status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]}}
    beat = send(http, "/api/v1/nodes/owned/status?fieldManager=beat", heartbeat, STRATEGIC).json()
    entry = next(item for item in beat["metadata"]["managedFields"] if item["manager"] == "beat")
    assert entry["subresource"] == "status"
    assert entry["fieldsV1"] == {"f:status": {"f:conditions": {'k:{"type":"Ready"}': {"f:lastHeartbeatTime": {}}}}}
    cleared = send(http, "/api/v1/nodes/owned?fieldManager=other", {"spec": {"taints": None}}, MERGE).json()
    assert owners(cleared, "f:spec", "f:taints") == set()


def test_protobuf_bodies_are_read(http: httpx.Client) -> None:
    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    attributes = field(2, b"get") + field(5, b"nodes")  # verb, resource
    review = field(2, field(1, attributes))  # spec.resourceAttributes
    kind = field(1, b"authorization.k8s.io/v1") + field(2, b"SelfSubjectAccessReview")
    answer = http.post(
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        content=b"k8s\x00" + field(1, kind) + field(2, review),
        headers={"Content-Type": "application/vnd.kubernetes.protobuf"},
    )
    assert answer.status_code == 201, answer.text
    assert answer.json()["spec"]["resourceAttributes"] == {"verb": "get", "resource": "nodes"}
    assert answer.json()["status"] == {"allowed": True}
    cut = b"k8s\x00" + field(1, kind) + b"\x12\x50"
    headers = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    assert http.post(CONFIGMAPS, content=cut, headers=headers).status_code == 400


def test_a_generated_name_that_is_taken_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tails = iter(["aaaaa", "aaaaa", "bbbbb", *["aaaaa"] * 100])
    monkeypatch.setattr(objects, "random_suffix", lambda: next(tails))
    kept, namespaces = objects.Objects(Store()), BY_PATH["", "v1", "namespaces"]
    body = {"metadata": {"generateName": "n-"}}
    made = [kept.create(namespaces, "", {"metadata": {**body["metadata"]}}, objects.Write("me")) for _ in range(2)]
    assert [stored.name for stored in made] == ["n-aaaaa", "n-bbbbb"]
    with pytest.raises(StatusError, match="already exists"):
        kept.create(namespaces, "", body, objects.Write("me"))


def test_a_pod_may_name_the_runtime_classes_that_the_server_was_started_with() -> None:
    kept, pods = objects.Objects(Store(), {"nvidia"}), BY_PATH["", "v1", "pods"]
    for resource, name in (("namespaces", "default"), ("serviceaccounts", "default")):
        where = "" if resource == "namespaces" else "default"
        kept.create(BY_PATH["", "v1", resource], where, {"metadata": {"name": name}}, objects.Write("me"))

    def create(runtime_class: str) -> None:
        spec = {"runtimeClassName": runtime_class, "containers": [{"name": "main", "image": "i"}]}
        kept.create(pods, "default", {"metadata": {"name": runtime_class}, "spec": spec}, objects.Write("me"))

    create("nvidia")
    with pytest.raises(StatusError, match='pod rejected: RuntimeClass "gvisor" not found'):
        create("gvisor")
