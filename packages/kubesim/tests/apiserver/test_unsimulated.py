"""Requests for what kubesim does not simulate: each is refused or warned of, and the lab is named."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from kubesim import unsimulated
from kubesim.apiserver.resources import BY_NAME, UNSERVED
from tests.kubesim.apiserver.conftest import pod
from tests.kubesim.processes import ApiServer

pytestmark = pytest.mark.conformance
LAB = "`gameday lab up` runs a real API server"
SPACE = "/namespaces/default"
CONFIGMAPS = f"/api/v1{SPACE}/configmaps"
CONTAINERS = [{"name": "main", "image": "busybox:1"}]
TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": CONTAINERS}}
SELECTED = {"selector": {"matchLabels": {"app": "a"}}, "template": TEMPLATE}
JOB_TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": CONTAINERS}}
ANTI = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}]}}  # fmt: skip
NEAR = {"podAffinity": ANTI["podAntiAffinity"]}
SPREAD = [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}]
RULES = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}


def collection(key: str) -> str:
    resource = BY_NAME[key]
    root = f"/apis/{resource.api_version}" if resource.group else "/api/v1"
    return f"{root}{SPACE if resource.namespaced else ''}/{resource.plural}"


def warnings(answer: httpx.Response) -> list[str]:
    assert answer.is_success, answer.text
    return [text for text in answer.headers.get_list("Warning") if "not simulated by kubesim" in text]


def events(http: httpx.Client, uid: str) -> list[str]:
    found = http.get("/api/v1/events", params={"fieldSelector": f"involvedObject.uid={uid},reason=NotSimulated"})
    return [item["message"] for item in found.json()["items"]]


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
        ("aggregating ClusterRoles", "clusterroles.rbac.authorization.k8s.io", {
            "aggregationRule": {"clusterRoleSelectors": []}, "rules": []}),
        ("preemption", "priorityclasses.scheduling.k8s.io", {"value": 5}),
        ("pod security level", "namespaces", {
            "metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}),
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
    body = {"metadata": {"name": "dry"}, "spec": {"containers": CONTAINERS, "affinity": NEAR}}
    made = http.post(collection("pods"), json=body, params={"dryRun": "All"})
    assert warnings(made) and events(http, made.json()["metadata"]["uid"]) == []


def test_a_change_warns_again_and_a_status_does_not(http: httpx.Client) -> None:
    spec = {"containers": CONTAINERS, "affinity": NEAR}
    path, kind = f"{collection('pods')}/again", {"Content-Type": "application/merge-patch+json"}
    made = http.post(collection("pods"), json={"metadata": {"name": "again"}, "spec": spec})
    changed = http.patch(path, json={"metadata": {"labels": {"a": "b"}}}, headers=kind)
    assert warnings(changed) == warnings(made) != []
    assert warnings(http.patch(f"{path}/status", json={"status": {"reason": "x"}}, headers=kind)) == []
    assert len(events(http, made.json()["metadata"]["uid"])) == 1


PATHS = [
    *(f"/api/v1{SPACE}/pods/p/{sub}" for sub in ("exec", "attach", "portforward", "ephemeralcontainers", "resize")),
    f"/api/v1{SPACE}/pods/p/proxy/index.html",
    f"/api/v1{SPACE}/finalize",
    "/api/v1/nodes/n/proxy/stats/summary",
    *(f"/apis/{group}/v1/things" for group in sorted(unsimulated.GROUPS)),
    *(f"/{'apis' if one.group else 'api'}/{one.api_version}/{one.plural}" for one in UNSERVED),
    f"/apis/apps/v1{SPACE}/deployments/d/scale",
]
OTHERS = [
    ("GET", CONFIGMAPS, {"Accept": "application/yaml"}, 406),
    ("GET", CONFIGMAPS, {"Accept": "application/vnd.kubernetes.protobuf"}, 406),
    ("POST", CONFIGMAPS, {"Content-Type": "application/yaml"}, 415),
    ("PATCH", f"{CONFIGMAPS}/a?fieldManager=me", {"Content-Type": "application/apply-patch+yaml"}, 415),
    ("GET", CONFIGMAPS, {"Impersonate-User": "a", "Impersonate-Uid": "7"}, 400),
    ("GET", CONFIGMAPS, {"Impersonate-User": "a", "Impersonate-Extra-Scopes": "b"}, 400),
]
REFUSED = [*((method, path, {}, 404) for path in PATHS for method in ("GET", "POST")), *OTHERS]


@pytest.mark.parametrize(("method", "path", "headers", "status"), REFUSED)
def test_what_only_a_real_server_does_is_refused_in_words(
    http: httpx.Client, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    content = b"{}" if method != "GET" else None
    answer = http.request(method, path, content=content, headers=headers)
    assert answer.status_code == status and f"is not simulated by kubesim; {LAB}" in answer.json()["message"]


def test_paths_that_no_server_has_are_not_found(http: httpx.Client) -> None:
    assert http.get("/apis/example.com/v1/things").text == "404 page not found\n"
    assert "simulated" not in http.get(f"/api/v1{SPACE}/pods/p/nonsense").text


def test_rights_come_first(server: ApiServer) -> None:
    with server.http("nodes") as http:
        assert http.post(f"/api/v1{SPACE}/pods/p/exec").status_code == 403


def test_kubectl_shows_the_words(kubectl: Callable[..., str], http: httpx.Client) -> None:
    http.post(f"/api/v1{SPACE}/pods", json=pod("shell"))
    applied = '{"apiVersion":"%s","kind":"%s","metadata":{"name":"a"}}'
    for command, stdin in (
        (("exec", "shell", "--", "id"), ""),
        (("attach", "shell"), ""),
        (("debug", "shell", "--image=busybox:1"), ""),
        (("get", "deploy,svc"), ""),
        (("create", "deployment", "d", "--image=busybox:1"), ""),
        (("apply", "--validate=false", "-f", "-"), applied % ("apps/v1", "Deployment")),
        (("apply", "--server-side", "-f", "-"), applied % ("v1", "ConfigMap")),
    ):
        assert f"is not simulated by kubesim; {LAB}" in kubectl(*command, stdin=stdin, fails=True), command
    assert "Warning: pod affinity is not simulated by kubesim" in kubectl(
        "run", "near", "--image=busybox:1", "--overrides", json.dumps({"spec": {"affinity": NEAR}})
    )
