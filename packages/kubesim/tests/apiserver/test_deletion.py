"""Deletion as the recorded scripts do not ask for it: owners, namespaces, evictions by the official client."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.kubesim.apiserver.conftest import make_running, pod
from tests.kubesim.processes import eventually

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
PDBS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
MERGE = {"Content-Type": "application/merge-patch+json"}


def delete(http: httpx.Client, path: str, **options: Any) -> httpx.Response:
    return http.request("DELETE", path, json={"kind": "DeleteOptions", "apiVersion": "v1", **options})


def gone(http: httpx.Client, path: str) -> bool:
    return http.get(path).status_code == 404


def owner(obj: dict[str, Any], **more: Any) -> dict[str, Any]:
    meta = obj["metadata"]
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": meta["name"], "uid": meta["uid"], **more}


def test_dependents_follow_their_owner(http: httpx.Client) -> None:
    made = http.post(CONFIGMAPS, json={"metadata": {"name": "owner"}}).json()
    for name in ("child-1", "child-2"):
        http.post(CONFIGMAPS, json={"metadata": {"name": name, "ownerReferences": [owner(made)]}})
    delete(http, f"{CONFIGMAPS}/owner")
    eventually(lambda: gone(http, f"{CONFIGMAPS}/child-1") and gone(http, f"{CONFIGMAPS}/child-2"), "children")
    http.post(CONFIGMAPS, json={"metadata": {"name": "late", "ownerReferences": [owner(made)]}})
    eventually(lambda: gone(http, f"{CONFIGMAPS}/late"), "a child born after its owner went")


def test_a_namespace_goes_with_what_it_holds(http: httpx.Client) -> None:
    http.post("/api/v1/namespaces", json={"metadata": {"name": "brief"}})
    assert http.get("/api/v1/namespaces/brief/serviceaccounts/default").status_code == 200
    path = "/api/v1/namespaces/brief/pods"
    http.post(path, json=pod("inside", nodeName="n1"))
    assert delete(http, "/api/v1/namespaces/brief").json()["status"]["phase"] == "Terminating"
    eventually(lambda: "deletionTimestamp" in http.get(f"{path}/inside").json()["metadata"], "the pod is asked to go")
    refused = http.post("/api/v1/namespaces/brief/configmaps", json={"metadata": {"name": "late"}})
    assert refused.status_code == 403 and "being terminated" in refused.json()["message"]
    delete(http, f"{path}/inside", gracePeriodSeconds=0)
    eventually(lambda: gone(http, "/api/v1/namespaces/brief"), "the namespace")
    assert delete(http, "/api/v1/namespaces/default").status_code == 403


def test_eviction_asks_the_budget(http: httpx.Client, core: client.CoreV1Api) -> None:
    for name in ("guarded-1", "guarded-2"):
        body = pod(name, nodeName="n1")
        body["metadata"]["labels"] = {"app": "guarded"}
        http.post(PODS, json=body)
        make_running(http, name)
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}}
    http.post(PDBS, json={"metadata": {"name": "guard"}, "spec": spec})
    first = client.V1Eviction(metadata=client.V1ObjectMeta(name="guarded-1", namespace="default"))
    with pytest.raises(ApiException) as refused:
        core.create_namespaced_pod_eviction("guarded-1", "default", first)
    assert refused.value.status == 429 and "still being processed" in refused.value.body
    assert refused.value.headers["Retry-After"] == "10"
    status = b'{"status":{"observedGeneration":1,"disruptionsAllowed":1,"currentHealthy":2,"desiredHealthy":1}}'
    http.patch(f"{PDBS}/guard/status", content=status, headers=MERGE)
    core.create_namespaced_pod_eviction("guarded-1", "default", first)
    assert "deletionTimestamp" in http.get(f"{PODS}/guarded-1").json()["metadata"]
    budget = http.get(f"{PDBS}/guard").json()["status"]
    assert budget["disruptionsAllowed"] == 0 and "guarded-1" in budget["disruptedPods"]
    second = client.V1Eviction(metadata=client.V1ObjectMeta(name="guarded-2", namespace="default"))
    with pytest.raises(ApiException) as refused:
        core.create_namespaced_pod_eviction("guarded-2", "default", second)
    assert '"reason":"DisruptionBudget"' in refused.value.body and refused.value.status == 429
    assert "Cannot evict pod as it would violate the pod's disruption budget." in refused.value.body
