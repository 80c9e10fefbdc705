"""Create, update, patch: codes, bodies, defaults, and who owns what."""

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
from tests.kubesim.apiserver.conftest import node, pod
from tests.kubesim.processes import ApiServer

MERGE = {"Content-Type": "application/merge-patch+json"}
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
JSON_PATCH = {"Content-Type": "application/json-patch+json"}
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


def test_generated_names_and_name_rules(http: httpx.Client) -> None:
    names = {
        http.post(CONFIGMAPS, json={"metadata": {"generateName": "gen-"}}).json()["metadata"]["name"] for _ in "ab"
    }
    assert len(names) == 2 and all(name.startswith("gen-") and len(name) == 9 for name in names)
    refused = http.post(CONFIGMAPS, json={"metadata": {"name": "No_Good", "labels": {"a b": "c"}}})
    causes = refused.json()["details"]["causes"]
    assert refused.status_code == 422 and refused.json()["reason"] == "Invalid"
    assert {cause["field"] for cause in causes} == {"metadata.name", "metadata.labels"}
    assert http.post(CONFIGMAPS, json={"metadata": {}}).status_code == 422


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "spec.containers"),
        ({"containers": [{"name": "c"}]}, "spec.containers[0].image"),
        ({"containers": [{"name": "C", "image": "i"}]}, "spec.containers[0].name"),
        ({"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Maybe"}, "spec.restartPolicy"),
    ],
)
def test_pods_are_validated(http: httpx.Client, spec: dict[str, Any], field: str) -> None:
    answer = http.post(PODS, json={"metadata": {"name": "bad"}, "spec": spec})
    assert answer.status_code == 422
    assert [cause["field"] for cause in answer.json()["details"]["causes"]] == [field]


def test_pods_get_their_defaults(http: httpx.Client) -> None:
    made = http.post(PODS, json=pod("defaulted", tolerations=[{"operator": "Exists", "effect": "NoSchedule"}])).json()
    spec = made["spec"]
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("Always", 30)
    assert spec["containers"][0]["terminationMessagePath"] == "/dev/termination-log"
    assert (made["status"]["phase"], made["status"]["qosClass"]) == ("Pending", "BestEffort")
    evictions = {item["key"]: item["tolerationSeconds"] for item in spec["tolerations"] if "tolerationSeconds" in item}
    assert evictions == {"node.kubernetes.io/not-ready": 300, "node.kubernetes.io/unreachable": 300}
    moved = send(http, f"{PODS}/defaulted", {"spec": {"hostname": "x"}}, MERGE)
    assert moved.status_code == 422 and "pod updates may not change fields" in moved.text


def test_jobs_get_their_selector(http: httpx.Client) -> None:
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}
    made = http.post("/apis/batch/v1/namespaces/default/jobs", json={"metadata": {"name": "job"}, "spec": spec}).json()
    uid = made["metadata"]["uid"]
    assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert made["spec"]["template"]["metadata"]["labels"]["job-name"] == "job"
    assert (made["spec"]["backoffLimit"], made["spec"]["completions"], made["spec"]["parallelism"]) == (6, 1, 1)


def test_status_and_spec_are_written_apart(http: httpx.Client) -> None:
    http.post("/api/v1/nodes", json=node("apart"))
    send(http, "/api/v1/nodes/apart/status", {"spec": {"unschedulable": True}, "status": {"phase": "1"}}, MERGE)
    send(http, "/api/v1/nodes/apart", {"spec": {"podCIDR": "10.1.0.0/24"}, "status": {"phase": "2"}}, MERGE)
    found = http.get("/api/v1/nodes/apart").json()
    assert found["status"]["phase"] == "1" and "unschedulable" not in found["spec"]
    assert found["spec"]["podCIDR"] == "10.1.0.0/24"


def test_a_new_node_is_tainted_until_it_is_ready(http: httpx.Client) -> None:
    made = http.post("/api/v1/nodes", json=node("fresh")).json()
    assert made["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]


def test_generation_follows_the_spec_only(http: httpx.Client) -> None:
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    body = {"metadata": {"name": "gen"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}}
    assert http.post(path, json=body).json()["metadata"]["generation"] == 1
    assert send(http, f"{path}/gen", {"metadata": {"labels": {"x": "y"}}}, MERGE).json()["metadata"]["generation"] == 1
    assert send(http, f"{path}/gen", {"spec": {"minAvailable": 2}}, MERGE).json()["metadata"]["generation"] == 2
    status = send(http, f"{path}/gen/status", {"status": {"disruptionsAllowed": 1}}, MERGE).json()
    assert status["metadata"]["generation"] == 2


def test_strategic_merge_knows_the_lists(http: httpx.Client) -> None:
    taint = {"key": "a", "effect": "NoSchedule"}
    http.post("/api/v1/nodes", json={**node("strategic"), "spec": {"taints": [taint]}})
    other = {"key": "b", "effect": "NoExecute"}
    path = "/api/v1/nodes/strategic"
    assert send(http, path, {"spec": {"taints": [other]}}, STRATEGIC).json()["spec"]["taints"] == [other]
    disk = {"type": "DiskPressure", "status": "False"}
    patched = send(http, f"{path}/status", {"status": {"conditions": [disk]}}, STRATEGIC).json()
    assert [condition["type"] for condition in patched["status"]["conditions"]] == ["DiskPressure", "Ready"]
    gone = {"status": {"conditions": [{"type": "DiskPressure", "$patch": "delete"}],
                       "$setElementOrder/conditions": [{"type": "Ready"}]}}  # fmt: skip
    patched = send(http, f"{path}/status", gone, STRATEGIC).json()
    assert [condition["type"] for condition in patched["status"]["conditions"]] == ["Ready"]
    cleared = send(http, path, {"spec": {"taints": None}}, STRATEGIC).json()
    assert "taints" not in cleared["spec"]


def test_json_patch_tests_before_it_writes(http: httpx.Client) -> None:
    http.post(CONFIGMAPS, json={"metadata": {"name": "jp"}, "data": {"a": "1"}})
    guarded = [{"op": "test", "path": "/data/a", "value": "2"}, {"op": "remove", "path": "/data/a"}]
    assert send(http, f"{CONFIGMAPS}/jp", guarded, JSON_PATCH).status_code == 422
    guarded[0]["value"] = "1"
    assert send(http, f"{CONFIGMAPS}/jp", guarded, JSON_PATCH).status_code == 200
    assert http.get(f"{CONFIGMAPS}/jp").json().get("data", {}) == {}
    assert send(http, f"{CONFIGMAPS}/jp", {"op": "x"}, JSON_PATCH).status_code == 400


def test_unknown_formats_and_methods(http: httpx.Client, server: ApiServer) -> None:
    refused = http.patch(f"{CONFIGMAPS}/x", content=b"{}", headers={"Content-Type": "text/plain"})
    assert (refused.status_code, refused.json()["reason"]) == (415, "UnsupportedMediaType")
    assert http.post(CONFIGMAPS, content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
    assert http.post(CONFIGMAPS, content=b"{", headers={"Content-Type": "application/json"}).status_code == 400
    assert http.put(CONFIGMAPS, json={}).status_code == 405
    assert http.get("/apis/nothing.io/v1/things").status_code == 404
    assert http.post("/api/v1/namespaces/absent/configmaps", json={"metadata": {"name": "x"}}).status_code == 404
    with server.http(token="wrong") as stranger:
        answer = stranger.get("/api/v1/nodes")
    assert (answer.status_code, answer.json()["reason"]) == (401, "Unauthorized")


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


def test_dry_run_changes_nothing(http: httpx.Client) -> None:
    assert http.post(f"{CONFIGMAPS}?dryRun=All", json={"metadata": {"name": "dry"}}).status_code == 201
    assert http.get(f"{CONFIGMAPS}/dry").status_code == 404


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


def test_binding_and_double_binding(http: httpx.Client) -> None:
    http.post(PODS, json=pod("bound"))
    binding = {"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "n1"}}
    assert http.post(f"{PODS}/bound/binding", json=binding).status_code == 201
    found = http.get(f"{PODS}/bound").json()
    assert found["spec"]["nodeName"] == "n1"
    assert {"type": "PodScheduled", "status": "True"}.items() <= found["status"]["conditions"][0].items()
    again = http.post(f"{PODS}/bound/binding", json=binding)
    assert again.status_code == 409 and 'already assigned to node "n1"' in again.json()["message"]


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
