"""managedFields: who owns what after which write."""

from __future__ import annotations

from typing import Any

from tests.kubesim.conformance.exchange import JSON_PATCH, MERGE, STRATEGIC, Client
from tests.kubesim.conformance.scripts import script
from tests.kubesim.conformance.scripts.write_parts import entries

Json = dict[str, Any]


@script
def managed_fields(c: Client) -> None:
    """After every sort of write."""
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    one = f"{configmaps}/one"

    def send(
        step: str, method: str, path: str, body: Any, content_type: str = "application/json", **query: str
    ) -> None:
        c.send(step, method, path, body, content_type=content_type, query=query, managed=True, only=_managed)

    meta = {"name": "one", "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["example.com/f"]}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    send(
        "created with an owner",
        "POST",
        configmaps,
        {"metadata": {"name": "owned", "ownerReferences": [owner]}},
        dryRun="All",
    )
    send("created", "POST", configmaps, {"metadata": meta, "data": {"k": "v"}, "immutable": False})
    send("created with nothing", "POST", configmaps, {"metadata": {"name": "nothing"}})
    send("created with empty maps", "POST", configmaps, {"metadata": {"name": "empty", "labels": {}}, "data": {}})
    send("patched by another", "PATCH", one, {"data": {"k": "w", "l": "x"}}, MERGE, fieldManager="b")
    send("nothing patched", "PATCH", one, {"data": {"k": "w"}}, MERGE, fieldManager="c")
    send("a field removed by another", "PATCH", one, {"data": {"l": None}}, MERGE, fieldManager="c")
    send("a strategic patch", "PATCH", one, {"metadata": {"labels": {"e": "f"}}}, STRATEGIC, fieldManager="c")
    send("a JSON patch", "PATCH", one, [{"op": "remove", "path": "/metadata/labels/a"}], JSON_PATCH, fieldManager="d")
    send("replaced by the first", "PUT", one, {"metadata": {"name": "one"}, "data": {"k": "z"}})
    send("a long manager", "PATCH", one, {"data": {"k": "y"}}, MERGE, fieldManager="x" * 129)
    send("managedFields cleared", "PATCH", one, {"metadata": {"managedFields": [{}]}}, MERGE, fieldManager="b")
    send("a patch of what nobody owns", "PATCH", one, {"data": {"n": "o"}}, MERGE, fieldManager="b")
    send("managedFields emptied", "PATCH", one, {"metadata": {"managedFields": []}}, MERGE, fieldManager="b")
    send("managedFields removed", "PATCH", one, {"metadata": {"managedFields": None}}, MERGE, fieldManager="b")
    pods = f"/api/v1/namespaces/{c.ns}/pods"
    spec = {"containers": [{"name": "c", "image": "i:1", "resources": {"limits": {"nvidia.com/gpu": 1}},
                            "env": [{"name": "A", "value": "b"}], "ports": [{"containerPort": 80}],
                            "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            "volumes": [{"name": "v", "emptyDir": {}}], "nodeSelector": {"a": "b"},
            "tolerations": [{"operator": "Exists"}]}  # fmt: skip
    send("a pod", "POST", pods, {"metadata": {"name": "p"}, "spec": spec}, fieldManager="a")
    status = {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
              "startTime": "2026-01-02T03:04:05Z",
              "conditions": [{"type": "Ready", "status": "True"}],
              "containerStatuses": [{"name": "c", "ready": True, "image": "i:1", "imageID": "",
                                     "restartCount": 0}]}  # fmt: skip
    send("a pod's status", "PATCH", f"{pods}/p/status", {"status": status}, STRATEGIC, fieldManager="kubelet")
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "managed-fields-1"}}
    c.do("POST", f"{pods}/p/binding", binding)
    c.get("a bound pod", f"{pods}/p", managed=True, only=_managed)
    c.do("DELETE", f"{pods}/p")
    c.get("a deleted pod", f"{pods}/p", managed=True, only=_managed)
    jobs = f"/apis/batch/v1/namespaces/{c.ns}/jobs"
    template = {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}
    send("a job", "POST", jobs, {"metadata": {"name": "j"}, "spec": {"template": template}})
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{c.ns}/leases"
    send(
        "a lease",
        "POST",
        leases,
        {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 40}},
    )
    send(
        "a secret", "POST", f"/api/v1/namespaces/{c.ns}/secrets", {"metadata": {"name": "s"}, "stringData": {"a": "b"}}
    )
    send("an account", "POST", f"/api/v1/namespaces/{c.ns}/serviceaccounts", {
        "metadata": {"name": "a"}, "secrets": [{"name": "s"}], "imagePullSecrets": [{"name": "s"}]})  # fmt: skip
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": c.ns, "name": "p"},
             "reason": "r",
             "count": 1, "source": {"component": "me"}, "firstTimestamp": "2026-01-02T03:04:05Z"}  # fmt: skip
    send("an event", "POST", f"/api/v1/namespaces/{c.ns}/events", event)
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{c.ns}"
    send("a role", "POST", f"{rbac}/roles", {"metadata": {"name": "r"}, "rules": [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]})  # fmt: skip
    send("a role binding", "POST", f"{rbac}/rolebindings", {"metadata": {"name": "r"}, "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}, "subjects": [
        {"kind": "ServiceAccount", "name": "a", "namespace": c.ns}]})  # fmt: skip
    budgets = f"/apis/policy/v1/namespaces/{c.ns}/poddisruptionbudgets"
    send("a budget", "POST", budgets, {"metadata": {"name": "b"}, "spec": {
        "minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}})  # fmt: skip


def _managed(body: Any) -> Any:
    return body if body["kind"] == "Status" else entries(body)


@script
def managed_fields_of_nodes(c: Client) -> None:
    """A virtual kubelet's life: register, report, be tainted by one and drained by another."""
    nodes, node = "/api/v1/nodes", "/api/v1/nodes/managed-fields-1"

    def send(step: str, method: str, path: str, body: Any, content_type: str, manager: str) -> None:
        c.send(
            step,
            method,
            path,
            body,
            content_type=content_type,
            query={"fieldManager": manager},
            managed=True,
            only=_managed,
        )

    body = {"metadata": {"name": "managed-fields-1", "labels": {"kubernetes.io/hostname": "n"},
                         "annotations": {"a": "b"}},
            "status": {"capacity": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "False"}],
                       "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                       "nodeInfo": {"kubeletVersion": "v1"},
                       "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}}}  # fmt: skip
    send("registered", "POST", nodes, body, "application/json", "kubelet")
    change: Json = {"status": {"conditions": [{"type": "Ready", "status": "True",
                                               "lastHeartbeatTime": "2026-01-02T03:04:05Z"}],
                               "allocatable": {"cpu": "3"}, "images": [{"names": ["a"]}]}}  # fmt: skip
    send("reported", "PATCH", f"{node}/status", change, STRATEGIC, "kubelet")
    gpu = {"status": {"conditions": [{"type": "Gpu", "status": "True"}]}}
    send("a detector's condition", "PATCH", f"{node}/status", gpu, STRATEGIC, "npd")
    taints = [{"key": "a", "effect": "NoSchedule"}]
    send("tainted", "PATCH", node, {"spec": {"taints": taints}}, STRATEGIC, "health")
    send(
        "tainted by another",
        "PATCH",
        node,
        {"spec": {"taints": [*taints, {"key": "b", "effect": "NoExecute"}]}},
        STRATEGIC,
        "other",
    )
    send("cordoned", "PATCH", node, {"spec": {"unschedulable": True}}, MERGE, "kubectl-cordon")
    send("uncordoned", "PATCH", node, {"spec": {"unschedulable": None}}, MERGE, "kubectl-uncordon")
    send("untainted", "PATCH", node, {"spec": {"taints": None}}, MERGE, "health")
