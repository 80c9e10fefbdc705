"""Graceful deletion, finalizers, owners, namespaces, evictions."""

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
JOBS = "/apis/batch/v1/namespaces/default/jobs"
MERGE = {"Content-Type": "application/merge-patch+json"}


def delete(http: httpx.Client, path: str, **options: Any) -> httpx.Response:
    return http.request("DELETE", path, json={"kind": "DeleteOptions", "apiVersion": "v1", **options})


def gone(http: httpx.Client, path: str) -> bool:
    return http.get(path).status_code == 404


def owner(obj: dict[str, Any], **more: Any) -> dict[str, Any]:
    meta = obj["metadata"]
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": meta["name"], "uid": meta["uid"], **more}


def test_a_bound_pod_waits_for_its_kubelet(http: httpx.Client) -> None:
    http.post(PODS, json=pod("graceful", nodeName="n1"))
    marked = delete(http, f"{PODS}/graceful").json()["metadata"]
    assert marked["deletionGracePeriodSeconds"] == 30
    shorter = delete(http, f"{PODS}/graceful", gracePeriodSeconds=5).json()["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 5
    assert shorter["deletionTimestamp"] < marked["deletionTimestamp"]
    longer = delete(http, f"{PODS}/graceful", gracePeriodSeconds=60).json()["metadata"]
    assert longer["deletionTimestamp"] == shorter["deletionTimestamp"]
    delete(http, f"{PODS}/graceful", gracePeriodSeconds=0)
    assert gone(http, f"{PODS}/graceful")


def test_pods_nobody_runs_go_at_once(http: httpx.Client) -> None:
    http.post(PODS, json=pod("unbound"))
    assert delete(http, f"{PODS}/unbound").json()["kind"] == "Pod"
    assert gone(http, f"{PODS}/unbound")
    http.post(PODS, json=pod("finished", nodeName="n1"))
    http.patch(f"{PODS}/finished/status", content=b'{"status":{"phase":"Succeeded"}}', headers=MERGE)
    delete(http, f"{PODS}/finished")
    assert gone(http, f"{PODS}/finished")


def test_finalizers_hold(http: httpx.Client) -> None:
    http.post(CONFIGMAPS, json={"metadata": {"name": "held", "finalizers": ["example.com/hold"]}})
    assert "deletionTimestamp" in delete(http, f"{CONFIGMAPS}/held").json()["metadata"]
    assert http.get(f"{CONFIGMAPS}/held").status_code == 200
    http.patch(f"{CONFIGMAPS}/held", content=b'{"metadata":{"finalizers":null}}', headers=MERGE)
    assert gone(http, f"{CONFIGMAPS}/held")


def test_preconditions(http: httpx.Client) -> None:
    http.post(CONFIGMAPS, json={"metadata": {"name": "pre"}})
    refused = delete(http, f"{CONFIGMAPS}/pre", preconditions={"uid": "other"})
    assert refused.status_code == 409 and "the UID in the precondition (other)" in refused.json()["message"]
    done = delete(http, f"{CONFIGMAPS}/pre").json()
    assert done["status"] == "Success" and done["details"]["name"] == "pre"


def test_dependents_follow_their_owner(http: httpx.Client) -> None:
    made = http.post(CONFIGMAPS, json={"metadata": {"name": "owner"}}).json()
    for name in ("child-1", "child-2"):
        http.post(CONFIGMAPS, json={"metadata": {"name": name, "ownerReferences": [owner(made)]}})
    delete(http, f"{CONFIGMAPS}/owner")
    eventually(lambda: gone(http, f"{CONFIGMAPS}/child-1") and gone(http, f"{CONFIGMAPS}/child-2"), "children")
    http.post(CONFIGMAPS, json={"metadata": {"name": "late", "ownerReferences": [owner(made)]}})
    eventually(lambda: gone(http, f"{CONFIGMAPS}/late"), "a child born after its owner went")


def test_foreground_waits_for_the_blocking_dependents(http: httpx.Client) -> None:
    made = http.post(CONFIGMAPS, json={"metadata": {"name": "fore"}}).json()
    reference = owner(made, blockOwnerDeletion=True)
    http.post(CONFIGMAPS, json={"metadata": {"name": "slow", "ownerReferences": [reference], "finalizers": ["x.y/z"]}})
    answer = delete(http, f"{CONFIGMAPS}/fore", propagationPolicy="Foreground")
    assert answer.json()["metadata"]["finalizers"] == ["foregroundDeletion"]
    eventually(lambda: "deletionTimestamp" in http.get(f"{CONFIGMAPS}/slow").json()["metadata"], "the child is asked")
    assert http.get(f"{CONFIGMAPS}/fore").status_code == 200
    http.patch(f"{CONFIGMAPS}/slow", content=b'{"metadata":{"finalizers":null}}', headers=MERGE)
    eventually(lambda: gone(http, f"{CONFIGMAPS}/fore"), "the owner")


@pytest.mark.parametrize(("policy", "survives"), [("Background", False), ("Orphan", True), ("", True)])
def test_jobs_orphan_their_pods_by_default(http: httpx.Client, policy: str, survives: bool) -> None:
    name = f"job-{policy.lower() or 'default'}"
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}
    job = http.post(JOBS, json={"metadata": {"name": name}, "spec": spec}).json()
    body = pod(name)
    body["metadata"]["ownerReferences"] = [owner(job, controller=True)]
    http.post(PODS, json=body)
    delete(http, f"{JOBS}/{name}", **({"propagationPolicy": policy} if policy else {}))
    eventually(lambda: gone(http, f"{JOBS}/{name}"), "the job")
    if survives:
        assert "ownerReferences" not in http.get(f"{PODS}/{name}").json()["metadata"]
    else:
        eventually(lambda: gone(http, f"{PODS}/{name}"), "its pod")


def test_deletecollection(http: httpx.Client) -> None:
    for name in ("dc-1", "dc-2"):
        http.post(CONFIGMAPS, json={"metadata": {"name": name, "labels": {"sweep": "yes"}}})
    swept = http.delete(CONFIGMAPS, params={"labelSelector": "sweep=yes"}).json()
    assert len(swept["items"]) == 2 and gone(http, f"{CONFIGMAPS}/dc-1")
    assert http.get(f"{CONFIGMAPS}/kube-root-ca.crt").status_code == 200


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
