"""Everything the embedded server says decodes in the official Python client's models, in both its halves.

The objects are those of the scripts that make one of each kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from kubernetes import client
from kubernetes.aio import client as aio

from kubesim.apiserver.resources import RESOURCES, Resource
from tests.kubesim.conformance.exchange import Server
from tests.kubesim.conformance.play import play
from tests.kubesim.conformance.scripts import all_scripts
from tests.kubesim.processes import ApiServer

pytestmark = pytest.mark.conformance

STORED = [resource for resource in RESOURCES if resource.is_stored]


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server with the objects of the table scripts alone: the client refuses some odd ones of other scripts."""
    process = ApiServer(tmp_path_factory.mktemp("models"))
    server = Server(process.url, process.folder / "admin.kubeconfig", lambda: None)
    for name, script in all_scripts().items():
        if name.startswith("table_of_"):
            play(server, name, script)
    with server.http() as found:
        rbac, meta = "/apis/rbac.authorization.k8s.io/v1/namespaces/default", {"name": "r"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
        for plural, more in (("roles", {"rules": []}), ("rolebindings", {"roleRef": role})):
            assert found.post(f"{rbac}/{plural}", json={"metadata": meta, **more}).is_success
        yield found
    process.end()


def path_of(resource: Resource) -> str:
    return f"/apis/{resource.api_version}/{resource.plural}" if resource.group else f"/api/v1/{resource.plural}"


def model_of(resource: Resource) -> str:
    """The client's model; where two groups have a kind of one name, it puts the group before the version."""
    return "CoreV1Event" if resource.kind == "Event" else f"V1{resource.kind}"


def decoded(api: Any, body: Any, model: str) -> Any:
    return api.deserialize(json.dumps(body), model, "application/json")


@pytest.mark.parametrize("resource", STORED, ids=lambda resource: resource.qualified)
async def test_lists_and_objects(http: httpx.Client, resource: Resource) -> None:
    body = http.get(path_of(resource)).json()
    assert body["items"], f"no script makes any {resource.qualified}"
    names = [item["metadata"]["name"] for item in body["items"]]
    async with aio.ApiClient() as asynchronous:
        for api in (client.ApiClient(), asynchronous):
            found = decoded(api, body, f"{model_of(resource)}List")
            assert [item.metadata.name for item in found.items] == names
            one = decoded(api, body["items"][0], model_of(resource))
            assert one.metadata.uid == body["items"][0]["metadata"]["uid"]


@pytest.mark.parametrize("resource", STORED, ids=lambda resource: resource.qualified)
def test_watch_events(http: httpx.Client, resource: Resource) -> None:
    api = client.ApiClient()
    query = {
        "watch": "1",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    with http.stream("GET", path_of(resource), params=query) as answer:
        for line in answer.iter_lines():
            event = json.loads(line)
            if event["type"] == "BOOKMARK":
                break
            found = decoded(api, event["object"], model_of(resource))
            assert found.metadata.name == event["object"]["metadata"]["name"] and found.kind == resource.kind


@pytest.mark.parametrize(
    ("path", "body", "model"),
    [
        ("/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": {}}, "AuthenticationV1TokenRequest"),
        ("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, "V1SelfSubjectReview"),
        ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
         {"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}, "V1SelfSubjectAccessReview"),
        ("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {"spec": {"namespace": "default"}},
         "V1SelfSubjectRulesReview"),
        ("/api/v1/nodes", {}, "V1Status"),
        ("/api/v1/pods", {}, "V1Status"),
    ],
)  # fmt: skip
def test_reviews_and_failures(http: httpx.Client, path: str, body: Any, model: str) -> None:
    answer = http.post(path, json=body).json()
    assert decoded(client.ApiClient(), answer, model).kind == answer["kind"]


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/api", "V1APIVersions"),
        ("/apis", "V1APIGroupList"),
        ("/apis/batch", "V1APIGroup"),
        ("/apis/batch/v1", "V1APIResourceList"),
        ("/version", "VersionInfo"),
        ("/api/v1/nodes/nobody", "V1Status"),
    ],
)
def test_documents(http: httpx.Client, path: str, model: str) -> None:
    answer = http.get(path).json()
    assert decoded(client.ApiClient(), answer, model).to_dict()
