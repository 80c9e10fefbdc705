"""Who may do what: tokens, RBAC, reviews, impersonation."""

from __future__ import annotations

import httpx
import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.kubesim.processes import ApiServer

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def robot(server: ApiServer, http: httpx.Client) -> str:
    """A service account that may read one configmap and create any, and its token."""
    http.post(ACCOUNTS, json={"metadata": {"name": "robot"}})
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": ["mine"]},
        {"apiGroups": [""], "resources": ["configmaps", "pods/log"], "verbs": ["create"]},
    ]
    http.post(f"{RBAC}/namespaces/default/roles", json={"metadata": {"name": "robot"}, "rules": rules})
    binding = {
        "metadata": {"name": "robot"},
        "roleRef": {"kind": "Role", "name": "robot"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot"}],
    }
    assert http.post(f"{RBAC}/namespaces/default/rolebindings", json=binding).status_code == 201
    made = http.post(f"{ACCOUNTS}/robot/token", json={"spec": {"expirationSeconds": 3600}})
    token: str = made.json()["status"]["token"]
    return token


def test_roles_hold_where_they_are_bound(server: ApiServer, http: httpx.Client, robot: str) -> None:
    http.post(CONFIGMAPS, json={"metadata": {"name": "mine"}})
    http.post(CONFIGMAPS, json={"metadata": {"name": "theirs"}})
    with server.http(token=robot) as own:
        assert own.get(f"{CONFIGMAPS}/mine").status_code == 200
        assert own.post(CONFIGMAPS, json={"metadata": {"name": "new"}}).status_code == 201
        refused = own.get(f"{CONFIGMAPS}/theirs")
        assert refused.status_code == 403 and refused.json()["reason"] == "Forbidden"
        assert refused.json()["message"] == (
            'configmaps "theirs" is forbidden: User "system:serviceaccount:default:robot" cannot get resource '
            '"configmaps" in API group "" in the namespace "default"'
        )
        node = own.patch("/api/v1/nodes/x", content=b"{}", headers={"Content-Type": "application/merge-patch+json"})
        assert node.json()["message"] == (
            'nodes "x" is forbidden: User "system:serviceaccount:default:robot" cannot patch resource "nodes" '
            'in API group "" at the cluster scope'
        )
        assert own.post("/api/v1/namespaces/kube-system/configmaps", json={}).status_code == 403
        assert own.get("/metrics").status_code == 403 and own.get("/version").status_code == 200
        review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "configmaps", "namespace": "default",
                                                  "name": "mine"}}}  # fmt: skip
        answer = own.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", json=review).json()
        assert answer["status"]["allowed"] is True and "robot" in answer["status"]["reason"]
        me = own.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json={}).json()["status"]["userInfo"]
        assert "system:serviceaccounts:default" in me["groups"]


def test_a_role_binding_can_be_changed_and_taken_back(server: ApiServer, http: httpx.Client, robot: str) -> None:
    with server.http(token=robot) as own:
        assert own.get("/api/v1/nodes").status_code == 403
        binding = {
            "metadata": {"name": "robot-view"},
            "roleRef": {"kind": "ClusterRole", "name": "system:kube-scheduler"},
            "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
        }
        http.post(f"{RBAC}/clusterrolebindings", json=binding)
        assert own.get("/api/v1/nodes").status_code == 200
        http.delete(f"{RBAC}/clusterrolebindings/robot-view")
        assert own.get("/api/v1/nodes").status_code == 403


def test_a_token_dies_with_its_account(server: ApiServer, http: httpx.Client) -> None:
    http.post(ACCOUNTS, json={"metadata": {"name": "brief"}})
    token = http.post(f"{ACCOUNTS}/brief/token", json={}).json()["status"]["token"]
    with server.http(token=token) as own:
        me = own.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json={}).json()["status"]["userInfo"]
        assert me["username"] == "system:serviceaccount:default:brief"
        http.delete(f"{ACCOUNTS}/brief")
        assert own.get("/api").status_code == 401
    assert http.post(f"{ACCOUNTS}/default/token", json={"spec": {"expirationSeconds": 5}}).status_code == 422


def test_components_may_do_their_work_and_no_more(server: ApiServer) -> None:
    scheduler = client.CoreV1Api(server.api("scheduler"))
    assert scheduler.list_node().items == []
    with pytest.raises(ApiException) as refused:
        scheduler.create_namespaced_config_map("default", client.V1ConfigMap(metadata=client.V1ObjectMeta(name="x")))
    assert refused.value.status == 403
    nodes = client.CoreV1Api(server.api("nodes"))
    nodes.create_node(client.V1Node(metadata=client.V1ObjectMeta(name="n")))
    controllers = client.CoreV1Api(server.api("controllers"))
    taint = client.V1Taint(key="node.kubernetes.io/unreachable", effect="NoExecute")
    controllers.patch_node("n", {"spec": {"taints": [{"key": taint.key, "effect": taint.effect}]}})


def test_secrets_are_kept_private(server: ApiServer) -> None:
    for name in ("admin.kubeconfig", "nodes.kubeconfig", "tokens.json", "kube-apiserver.key", "ca.key", "state.jsonl"):
        assert (server.folder / name).stat().st_mode & 0o077 == 0


def test_health_needs_no_token(server: ApiServer) -> None:
    with httpx.Client(base_url=server.url, verify=server.tls()) as nobody:
        assert nobody.get("/readyz").text == "ok" and nobody.get("/version").status_code == 200
        assert nobody.get("/api/v1/nodes").status_code == 403


def test_metrics_count_requests(http: httpx.Client) -> None:
    http.get("/api/v1/nodes")
    text = http.get("/metrics").text
    assert 'apiserver_resource_objects{group="rbac.authorization.k8s.io",resource="clusterroles"} ' in text
    assert (
        'apiserver_request_total{verb="LIST",resource="nodes",subresource="",client="test-client",code="200"}' in text
    )
