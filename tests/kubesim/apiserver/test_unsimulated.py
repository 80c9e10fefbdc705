"""What kubesim does not simulate it never takes in silence: a warning, an Event or a refusal names the lab."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from kubesim.apiserver.resources import CANONICAL
from tests.kubesim.apiserver.conftest import pod
from tests.kubesim.processes import ApiServer

pytestmark = pytest.mark.conformance
LAB = "`gameday lab up` runs a real API server"
SPACE = "/namespaces/default"
CONTAINERS = [{"name": "main", "image": "busybox:1"}]
TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": CONTAINERS}}
SELECTED = {"selector": {"matchLabels": {"app": "a"}}, "template": TEMPLATE}
JOB_TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": CONTAINERS}}
CLAIM = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
VOLUME_CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
VOLUME = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}
SLICE = {"driver": "d", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}

STORED: dict[str, dict[str, Any]] = {
    "cronjobs.batch": {"spec": {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": JOB_TEMPLATE}}}},
    "csinodes.storage.k8s.io": {"spec": {"drivers": []}},
    "deployments.apps": {"spec": SELECTED},
    "deviceclasses.resource.k8s.io": {"spec": {}},
    "endpoints": {},
    "endpointslices.discovery.k8s.io": {"addressType": "IPv4", "endpoints": []},
    "limitranges": {"spec": {"limits": []}},
    "persistentvolumeclaims": {"spec": VOLUME_CLAIM},
    "persistentvolumes": {"spec": VOLUME},
    "replicasets.apps": {"spec": SELECTED},
    "resourceclaims.resource.k8s.io": {"spec": CLAIM},
    "resourceclaimtemplates.resource.k8s.io": {"spec": {"spec": CLAIM}},
    "resourcequotas": {"spec": {"hard": {"pods": "1"}}},
    "resourceslices.resource.k8s.io": {"spec": SLICE},
    "services": {"spec": {"ports": [{"port": 80}]}},
    "statefulsets.apps": {"spec": {**SELECTED, "serviceName": "s"}},
    "storageclasses.storage.k8s.io": {"provisioner": "p"},
    "clusterroles.rbac.authorization.k8s.io": {"aggregationRule": {"clusterRoleSelectors": []}, "rules": []},
    "priorityclasses.scheduling.k8s.io": {"value": 5},
}
ANTI = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}]}}  # fmt: skip
NEAR = {"podAffinity": ANTI["podAntiAffinity"]}
SPREAD = [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}]
RULES = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}


def collection(key: str) -> str:
    resource = CANONICAL[key]
    root = f"/apis/{resource.api_version}" if resource.group else "/api/v1"
    return f"{root}{SPACE if resource.namespaced else ''}/{resource.plural}"


def warnings(answer: httpx.Response) -> list[str]:
    assert answer.is_success, answer.text
    return [text for text in answer.headers.get_list("Warning") if "not simulated by kubesim" in text]


def events(http: httpx.Client, uid: str) -> list[str]:
    found = http.get("/api/v1/events", params={"fieldSelector": f"involvedObject.uid={uid},reason=NotSimulated"})
    return [item["message"] for item in found.json()["items"]]


@pytest.mark.parametrize("key", STORED)
def test_objects_that_nobody_acts_on_are_stored_with_a_warning_and_an_event(http: httpx.Client, key: str) -> None:
    name = f"u-{uuid.uuid4().hex[:8]}"
    made = http.post(collection(key), json={"metadata": {"name": name}, **STORED[key]})
    assert len(warnings(made)) == 1 and LAB in warnings(made)[0]
    messages = events(http, made.json()["metadata"]["uid"])
    assert len(messages) == 1 and LAB in messages[0]
    kind = {"Content-Type": "application/merge-patch+json"}
    changed = http.patch(f"{collection(key)}/{name}", json={"metadata": {"labels": {"a": "b"}}}, headers=kind)
    assert warnings(changed) == warnings(made)
    assert events(http, made.json()["metadata"]["uid"]) == messages


@pytest.mark.parametrize(
    ("what", "key", "body"),
    [
        ("pod anti-affinity", "pods", {"spec": {"containers": CONTAINERS, "affinity": ANTI}}),
        ("pod affinity", "pods", {"spec": {"containers": CONTAINERS, "affinity": NEAR}}),
        ("spreading pods", "pods", {"spec": {"containers": CONTAINERS, "topologySpreadConstraints": SPREAD}}),
        ("dynamic resource allocation", "pods", {"spec": {
            "containers": CONTAINERS, "resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}}),
        ("completionMode Indexed", "jobs.batch", {"spec": {
            "template": JOB_TEMPLATE, "completionMode": "Indexed", "completions": 2}}),
        ("podFailurePolicy", "jobs.batch", {"spec": {"template": JOB_TEMPLATE, "podFailurePolicy": RULES}}),
        ("pod anti-affinity", "jobs.batch", {"spec": {
            "template": {"spec": {**JOB_TEMPLATE["spec"], "affinity": ANTI}}}}),
        ("maxSurge", "daemonsets.apps", {"spec": {
            **SELECTED, "updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}}),
        ("filling Secrets", "secrets", {
            "metadata": {"annotations": {"kubernetes.io/service-account.name": "default"}},
            "type": "kubernetes.io/service-account-token"}),
    ],
)  # fmt: skip
def test_parts_of_objects_that_nobody_acts_on_are_named(
    http: httpx.Client, what: str, key: str, body: dict[str, Any]
) -> None:
    metadata = {"name": f"u-{uuid.uuid4().hex[:8]}", **body.get("metadata", {})}
    made = http.post(collection(key), json={**body, "metadata": metadata})
    messages = events(http, made.json()["metadata"]["uid"])
    assert [what in text for text in warnings(made)] == [True] and [what in text for text in messages] == [True]


@pytest.mark.parametrize(
    ("key", "body"),
    [
        ("pods", pod("simulated")),
        ("jobs.batch", {"metadata": {"name": "simulated"}, "spec": {"template": JOB_TEMPLATE}}),
        ("daemonsets.apps", {"metadata": {"name": "simulated"}, "spec": SELECTED}),
        ("configmaps", {"metadata": {"name": "simulated"}}),
        ("priorityclasses.scheduling.k8s.io", {"metadata": {"name": "s"}, "value": 5, "preemptionPolicy": "Never"}),
    ],
)
def test_what_is_simulated_gets_no_warning_and_no_event(http: httpx.Client, key: str, body: dict[str, Any]) -> None:
    made = http.post(collection(key), json=body)
    assert warnings(made) == [] and events(http, made.json()["metadata"]["uid"]) == []


def test_a_dry_run_warns_and_leaves_no_event(http: httpx.Client) -> None:
    body = {"metadata": {"name": "dry"}, "spec": SELECTED}
    made = http.post(collection("deployments.apps"), json=body, params={"dryRun": "All"})
    assert warnings(made) and events(http, made.json()["metadata"]["uid"]) == []


def test_a_controller_that_writes_a_status_is_not_warned(http: httpx.Client) -> None:
    path = collection("deployments.apps")
    http.post(path, json={"metadata": {"name": "status"}, "spec": SELECTED})
    kind = {"Content-Type": "application/merge-patch+json"}
    written = http.patch(f"{path}/status/status", json={"status": {"replicas": 1}}, headers=kind)
    assert warnings(written) == []


@pytest.mark.parametrize(
    "path",
    [
        f"/api/v1{SPACE}/pods/p/exec",
        f"/api/v1{SPACE}/pods/p/attach",
        f"/api/v1{SPACE}/pods/p/portforward",
        f"/api/v1{SPACE}/pods/p/ephemeralcontainers",
        f"/api/v1{SPACE}/pods/p/resize",
        f"/api/v1{SPACE}/pods/p/proxy/index.html",
        f"/api/v1{SPACE}/services/s/proxy",
        "/api/v1/nodes/n/proxy/stats/summary",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/autoscaling/v2/horizontalpodautoscalers",
        f"/apis/networking.k8s.io/v1{SPACE}/ingresses",
        "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
    ],
)
def test_paths_that_only_a_real_server_has_are_refused_in_words(http: httpx.Client, path: str) -> None:
    for answer in (http.get(path), http.post(path, json={})):
        body = answer.json()
        assert answer.status_code == 404 and body["reason"] == "NotFound"
        assert "is not simulated by kubesim" in body["message"] and LAB in body["message"]


def test_server_side_apply_is_refused_in_words(http: httpx.Client) -> None:
    kind = {"Content-Type": "application/apply-patch+yaml"}
    answer = http.patch(f"{collection('configmaps')}/a?fieldManager=me", content=b"{}", headers=kind)
    assert answer.status_code == 415 and f"server-side apply is not simulated by kubesim; {LAB}" in answer.text


def test_paths_that_no_server_has_are_not_found(http: httpx.Client) -> None:
    assert http.get("/apis/example.com/v1/things").text == "404 page not found\n"
    assert "simulated" not in http.get(f"/api/v1{SPACE}/pods/p/nonsense").text


def test_rights_come_first(server: ApiServer) -> None:
    with server.http("nodes") as http:
        assert http.post(f"/api/v1{SPACE}/pods/p/exec").status_code == 403


def test_kubectl_shows_the_words(kubectl: Callable[..., str], http: httpx.Client) -> None:
    warning = f"Warning: the Deployment controller is not simulated by kubesim; {LAB}"
    assert warning in kubectl("create", "deployment", "shown", "--image=busybox:1")
    assert f"the Deployment controller is not simulated by kubesim; {LAB}" in kubectl("describe", "deployment", "shown")
    http.post(f"/api/v1{SPACE}/pods", json=pod("shell"))
    for command in (("exec", "shell", "--", "id"), ("attach", "shell"), ("debug", "shell", "--image=busybox:1")):
        assert "is not simulated by kubesim" in kubectl(*command, fails=True), command
    applied = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"}}'
    assert LAB in kubectl("apply", "--server-side", "-f", "-", stdin=applied, fails=True)
